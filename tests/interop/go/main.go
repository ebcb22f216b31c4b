// redsync, as a program of the protocol in ../README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var locks *redsync.Redsync

func lock(name string, ttl, wait time.Duration) (*redsync.Mutex, error) {
	mutex := locks.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
	if wait == 0 {
		return mutex, mutex.TryLock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return mutex, mutex.LockContext(ctx)
}

func unlock(mutex *redsync.Mutex) error {
	ok, err := mutex.Unlock()
	if err == nil && !ok {
		return errors.New("not unlocked")
	}
	return err
}

func count(name string, ttl, length, pause time.Duration, path string) string {
	end := time.Now().Add(length)
	acquired, failed, longest := 0, 0, time.Duration(0)
	for time.Now().Before(end) {
		asked := time.Now()
		mutex, err := lock(name, ttl, 20*time.Second)
		if err != nil {
			failed++
			continue
		}
		longest = max(longest, time.Since(asked))
		text, _ := os.ReadFile(path)
		number, _ := strconv.Atoi(string(text))
		time.Sleep(time.Millisecond)
		if err := os.WriteFile(path, []byte(strconv.Itoa(number+1)), 0o644); err != nil {
			panic(err)
		}
		acquired++
		if unlock(mutex) != nil {
			failed++
		}
		time.Sleep(pause)
	}
	return fmt.Sprintf("counted %d %d %d", acquired, failed, longest.Milliseconds())
}

func ms(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}

func versions() string {
	found := map[string]string{}
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		found[module.Path] = strings.TrimPrefix(module.Version, "v")
	}
	return fmt.Sprintf("redsync %s, go-redis %s, Go %s", found["github.com/go-redsync/redsync/v4"],
		found["github.com/redis/go-redis/v9"], strings.TrimPrefix(runtime.Version(), "go"))
}

func main() {
	var pools []redsyncredis.Pool
	for _, master := range os.Args[2:] {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Addr: master})))
	}
	locks = redsync.New(pools...)
	var held []*redsync.Mutex
	fmt.Println("ready", versions())
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Split(input.Text(), " ")
		switch words[0] {
		case "lock":
			mutex, err := lock(words[1], ms(words[2]), ms(words[3]))
			var redisError *redsync.RedisError
			if err == nil {
				held = append(held, mutex)
				fmt.Println("locked")
			} else if text := strings.ReplaceAll(err.Error(), "\n", " "); errors.As(err, &redisError) {
				fmt.Println("failed", text)
			} else {
				fmt.Println("refused", text)
			}
		case "unlock":
			last := len(held) - 1
			if err := unlock(held[last]); err == nil {
				fmt.Println("unlocked")
			} else {
				fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
			}
			held = held[:last]
		case "count":
			fmt.Println(count(words[1], ms(words[2]), ms(words[3]), ms(words[4]), words[5]))
		default:
			fmt.Println("failed unknown command")
		}
	}
}
