import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson, as a program of the protocol in ../../README.md. The kind is `redlock` or `rlock`. */
public final class Peer {
    private static final List<RedissonClient> clients = new ArrayList<>();
    private static final Deque<RLock> held = new ArrayDeque<>();
    private static boolean isRedLock;

    public static void main(String[] args) throws Exception {
        isRedLock = args[0].equals("redlock");
        for (String master : Arrays.asList(args).subList(1, args.length)) {
            clients.add(connect(master));
        }
        System.out.println("ready " + versions());
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = input.readLine()) != null; ) {
            System.out.println(reply(line.split(" ")).replace('\n', ' '));
        }
        System.exit(0);
    }

    private static String reply(String[] words) throws Exception {
        try {
            switch (words[0]) {
                case "lock":
                    RLock lock = named(words[1]);
                    if (!lock.tryLock(ms(words[3]), ms(words[2]), TimeUnit.MILLISECONDS)) {
                        return "refused false";
                    }
                    held.push(lock);
                    return "locked";
                case "unlock":
                    held.pop().unlock();
                    return "unlocked";
                case "depth":
                    return "depth " + depth(words[1]);
                case "count":
                    return count(words[1], ms(words[2]), ms(words[3]), ms(words[4]), Path.of(words[5]));
                default:
                    return "failed unknown command";
            }
        } catch (RuntimeException error) {
            return "failed " + error;
        }
    }

    private static String count(String name, long ttl, long millis, long pause, Path path)
            throws Exception {
        long end = System.currentTimeMillis() + millis;
        long acquired = 0, failed = 0, longest = 0;
        RLock lock = named(name);
        while (System.currentTimeMillis() < end) {
            long asked = System.currentTimeMillis();
            if (!lock.tryLock(20_000, ttl, TimeUnit.MILLISECONDS)) {
                failed++;
                continue;
            }
            longest = Math.max(longest, System.currentTimeMillis() - asked);
            String text = Files.readString(path);
            long number = text.isEmpty() ? 0 : Long.parseLong(text);
            Thread.sleep(1);
            Files.writeString(path, Long.toString(number + 1));
            acquired++;
            try {
                lock.unlock();
            } catch (RuntimeException error) {
                failed++;
            }
            Thread.sleep(pause);
        }
        return "counted " + acquired + " " + failed + " " + longest;
    }

    private static RLock named(String name) {
        RLock[] locks = clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new);
        return isRedLock ? new RedissonRedLock(locks) : locks[0];
    }

    /** Returns the hold count of any owner. RLock has a method for its own hold count only. */
    private static String depth(String name) {
        if (!clients.get(0).getLock(name).isLocked()) {
            return "0";
        }
        Map<String, String> fields = clients.get(0).<String, String>getMap(name, StringCodec.INSTANCE).readAllMap();
        return fields.entrySet().stream()
                .filter(field -> field.getKey().matches("[0-9a-f-]{36}:[0-9]+"))
                .map(Map.Entry::getValue)
                .findFirst()
                .orElse("0");
    }

    private static RedissonClient connect(String master) {
        var config = new Config().setThreads(2).setNettyThreads(2);
        config.useSingleServer()
                .setAddress("redis://" + master)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4);
        return Redisson.create(config);
    }

    private static String versions() {
        String redisson = Redisson.class.getPackage().getImplementationVersion();
        return "Redisson " + redisson + ", Java " + System.getProperty("java.version");
    }

    private static long ms(String text) {
        return Long.parseLong(text);
    }
}
