// Reads commands and prints what Apache Kafka's own ConnectionQuotas makes of them, a line for each. Its waits are left out: what
// comes before and behind them is called.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.ConnectionThrottledException;
import org.apache.kafka.network.TooManyConnectionsException;

public class Connections {
    static class Clock implements Time {
        long ms = 1_000_000;

        public long milliseconds() {
            return ms;
        }

        public long nanoseconds() {
            return ms * 1_000_000;
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    static Clock clock = new Clock();
    static ConnectionQuotas quotas;
    static KafkaConfig config;

    static Method method(String name, Class<?>... types) throws Exception {
        Method method = ConnectionQuotas.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method;
    }

    static void begin(String[] words) throws Exception {
        Map<String, String> properties = new HashMap<>();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.listener.names", "CONTROLLER");
        properties.put("controller.quorum.bootstrap.servers", "localhost:1");
        properties.put("listeners", "BROKERS://localhost:2,CLIENTS://localhost:3");
        properties.put("listener.security.protocol.map", "BROKERS:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT");
        properties.put("inter.broker.listener.name", "BROKERS");
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=");
            properties.put(pair[0], pair[1]);
        }
        config = new KafkaConfig(properties);
        config.dynamicConfig().initialize(scala.Option.empty());
        quotas = new ConnectionQuotas(config, clock, new Metrics(clock));
        quotas.addListener(config, new ListenerName("BROKERS"));
        quotas.addListener(config, new ListenerName("CLIENTS"));
    }

    static String enter(ListenerName listener, InetAddress address) throws Exception {
        try {
            method("recordIpConnectionMaybeThrottle", ListenerName.class, InetAddress.class).invoke(quotas, listener, address);
            return "-";
        } catch (InvocationTargetException e) {
            return "" + ((ConnectionThrottledException) e.getCause()).throttleTimeMs;
        }
    }

    static String open(ListenerName listener, InetAddress address) {
        try {
            quotas.inc(listener, address, null);
            return "open";
        } catch (TooManyConnectionsException e) {
            quotas.dec(listener, address);
            return "many";
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            ListenerName listener = words.length > 1 ? new ListenerName(words[1]) : null;
            boolean hasAddress = java.util.Set.of("enter", "open", "close").contains(words[0]);
            InetAddress address = hasAddress ? InetAddress.getByName(words[2]) : null;
            switch (words[0]) {
                case "connections":
                    begin(words);
                    continue;
                case "rate":
                    scala.Option<InetAddress> ip = scala.Option.apply(words[1].equals("*") ? null : InetAddress.getByName(words[1]));
                    quotas.updateIpConnectionRateQuota(ip, scala.Option.apply((Object) Integer.valueOf(words[2])));
                    continue;
                case "time":
                    clock.ms += Long.parseLong(words[1]);
                    continue;
                case "arrive":
                    output.append(method("recordConnectionAndGetThrottleTimeMs", ListenerName.class, long.class)
                        .invoke(quotas, listener, clock.ms));
                    break;
                case "enter":
                    output.append(enter(listener, address));
                    break;
                case "slot":
                    output.append(method("connectionSlotAvailable", ListenerName.class).invoke(quotas, listener));
                    break;
                case "open":
                    output.append(open(listener, address));
                    break;
                case "close":
                    quotas.dec(listener, address);
                    continue;
                case "exceeded":
                    output.append(quotas.maxConnectionsExceeded(listener));
                    break;
            }
            output.append('\n');
        }
        System.out.print(output);
        System.out.flush();
        System.exit(0);
    }
}
