import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main method of one of Kafka's tools in this process, and captures its output.
 * Starting a JVM takes longer than most tools. One tool at a time: they own the standard streams.
 */
final class Tool {
    /** The output and exit status of a tool. */
    record Outcome(int status, String out, String err) {
        Outcome good() {
            if (status != 0) {
                throw new AssertionError("status " + status + "\n" + out + "\n" + err);
            }
            return this;
        }

        Stream<String> lines() {
            return out.lines();
        }
    }

    /** Unwinds a tool that asked to exit; some catch it and exit again, so the first status counts. */
    private static final class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    private Tool() {
    }

    /** Runs a tool on the broker under test. */
    static Outcome run(String tool, String... arguments) {
        return runOn("", tool, arguments);
    }

    /** Runs a tool with this text as standard input. */
    static Outcome runOn(String input, String tool, String... arguments) {
        String[] secured = secured(arguments);
        String name = tool.contains(".") ? tool : "org.apache.kafka.tools." + tool;
        List<Runnable> hooks = new ArrayList<>();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        InputStream inBefore = System.in;
        AtomicReference<Integer> exit = new AtomicReference<>();
        Exit.Procedure unwind = (status, message) -> {
            exit.compareAndSet(null, status);
            throw new Exited();
        };
        Exit.setExitProcedure(unwind);
        Exit.setHaltProcedure(unwind);
        Exit.setShutdownHookAdder((hookName, hook) -> hooks.add(hook));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        try {
            call(name, secured);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                exit.compareAndSet(null, 1);
                thrown.getCause().printStackTrace();
            }
        } finally {
            hooks.forEach(Runnable::run);
            System.setOut(outBefore);
            System.setErr(errBefore);
            System.setIn(inBefore);
        }
        int status = exit.get() == null ? 0 : exit.get();
        return new Outcome(status, out.toString(StandardCharsets.UTF_8), err.toString(StandardCharsets.UTF_8));
    }

    /** Runs a tool in a separate process, for those that keep working during JVM shutdown. */
    static Outcome fork(String tool, String... arguments) throws IOException, InterruptedException {
        List<String> command = new ArrayList<>(List.of("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                System.getProperty("java.class.path")));
        Stream.of(System.getenv().getOrDefault("SECURITY_JVM", "").split(" ")).filter(option -> !option.isEmpty())
                .forEach(command::add);
        command.add("org.apache.kafka.tools." + tool);
        command.addAll(List.of(secured(arguments)));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        return new Outcome(process.waitFor(), out, "");
    }

    /** Adds the client settings of $SECURITY_JAVA to those of a tool that connects. */
    private static String[] secured(String... arguments) {
        String file = System.getenv("SECURITY_JAVA");
        List<String> all = new ArrayList<>(List.of(arguments));
        int server = all.indexOf("--bootstrap-server");
        if (file != null && server >= 0) {
            all.addAll(server + 2, List.of("--command-config", file));
        }
        return all.toArray(String[]::new);
    }

    private static void call(String name, String[] arguments) throws InvocationTargetException {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ClassNotFoundException | NoSuchMethodException | IllegalAccessException absent) {
            throw new AssertionError("no such tool: " + name, absent);
        }
    }
}
