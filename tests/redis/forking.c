// Forks the process when it asks for the ID of its parent, because safe Rust cannot fork. Returns 0
// in the child.

#include <unistd.h>

pid_t getppid(void) {
    return fork();
}
