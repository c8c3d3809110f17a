import java.io.FileReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * Runs the tests of a Java suite: every public method without parameters is one, named after the method.
 * Prints a line for each in the form that compat/run reads: {@code ok NAME | FAIL NAME: why | skip NAME: why}.
 */
public abstract class Suite {
    /** The test does not apply here, for the reason in its text. */
    public static final class Skip extends RuntimeException {
        public Skip(String why) {
            super(why);
        }
    }

    protected static final String BOOTSTRAP = System.getenv().getOrDefault("BOOTSTRAP", "127.0.0.1:9092");
    protected static final String DATA_DIR = System.getenv().getOrDefault("DATA_DIR", "");
    /** How clients connect: the settings in the file $SECURITY_JAVA, or none. */
    protected static final Map<String, String> SECURITY = security();
    private static final long TEST_TIMEOUT_S = 90;
    private static final PrintStream OUT = System.out;

    private record Test(Suite suite, Method method) {
        String name() {
            return method.getName();
        }
    }

    /** Runs the tests whose names contain one of the words (all, without words), several at a time, and exits. */
    protected static void run(String[] words, int parallel, Suite... suites) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(parallel);
        List<Future<Boolean>> outcomes = new ArrayList<>();
        for (Suite suite : suites) {
            Arrays.stream(suite.getClass().getDeclaredMethods())
                    .filter(method -> Modifier.isPublic(method.getModifiers()) && !Modifier.isStatic(method.getModifiers()))
                    .filter(method -> words.length == 0 || Arrays.stream(words).anyMatch(method.getName()::contains))
                    .sorted(Comparator.comparing(Method::getName))
                    .forEach(method -> outcomes.add(pool.submit(() -> runWithin(new Test(suite, method)))));
        }
        boolean good = true;
        for (Future<Boolean> outcome : outcomes) {
            good &= outcome.get();
        }
        Runtime.getRuntime().halt(good ? 0 : 1);
    }

    private static boolean runWithin(Test test) throws InterruptedException {
        ExecutorService one = Executors.newSingleThreadExecutor();
        Future<?> running = one.submit(() -> test.method.invoke(test.suite));
        try {
            running.get(TEST_TIMEOUT_S, TimeUnit.SECONDS);
            return say("ok " + test.name());
        } catch (TimeoutException slow) {
            running.cancel(true);
            say("FAIL " + test.name() + ": not within " + TEST_TIMEOUT_S + " s");
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause() instanceof InvocationTargetException wrapped
                    ? wrapped.getCause() : failed.getCause();
            if (cause instanceof Skip) {
                return say("skip " + test.name() + ": " + cause.getMessage());
            }
            synchronized (OUT) {
                cause.printStackTrace(OUT);
            }
            String why = cause.toString().replaceAll("\\s+", " ");
            say("FAIL " + test.name() + ": " + why.substring(0, Math.min(400, why.length())));
        } finally {
            one.shutdownNow();
        }
        return false;
    }

    private static boolean say(String line) {
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
        return true;
    }

    private static Map<String, String> security() {
        String file = System.getenv("SECURITY_JAVA");
        Properties settings = new Properties();
        if (file != null) {
            try (Reader reader = new FileReader(file, StandardCharsets.UTF_8)) {
                settings.load(reader);
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }
        return settings.stringPropertyNames().stream().collect(Collectors.toMap(Function.identity(), settings::getProperty));
    }

    /** A name that no other test uses, for a topic or a group. */
    protected static String unique(String stem) {
        return stem + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    protected static void check(boolean holds, Object found) {
        if (!holds) {
            throw new AssertionError(String.valueOf(found));
        }
    }

    protected static void equal(Object expected, Object found) {
        check(expected.equals(found), "expected " + expected + ", found " + found);
    }

    /** Waits for the condition to hold. */
    protected static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!condition.call()) {
            check(System.nanoTime() < deadline, "not within 30 s: " + what);
            Thread.sleep(50);
        }
    }
}
