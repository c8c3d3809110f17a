// Reads commands and prints what Apache Kafka's own quota classes make of them, a line for each.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.PermissiveControllerMutationQuota;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.QuotaUtils;
import org.apache.kafka.server.quota.StrictControllerMutationQuota;

public class Quotas {
    static Metrics metrics = new Metrics();
    static Sensor sensor;
    static Rate rate;
    static TokenBucket bucket;
    static Avg average;
    static MetricConfig config;
    static ClientQuotaManager manager;
    static ControllerMutationQuota mutations;
    static int made = 0;

    static class Clock implements Time {
        long ms;

        public long milliseconds() {
            return ms;
        }

        public long nanoseconds() {
            return ms * 1_000_000;
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object object, java.util.function.Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    static Clock clock = new Clock();

    static void begin(String[] words) {
        config = new MetricConfig().samples(Integer.parseInt(words[1]))
            .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
            .quota(new Quota(Double.parseDouble(words[3]), true));
        sensor = metrics.sensor("sensor" + made);
        rate = null;
        bucket = null;
        if (words[0].equals("rate")) {
            sensor.add(metrics.metricName("metric" + made, "test"), rate = new Rate(), config);
        } else {
            sensor.add(metrics.metricName("metric" + made, "test"), bucket = new TokenBucket(), config);
        }
        made++;
    }

    static String record(double value, long now) {
        try {
            sensor.record(value, now, true);
            return "-";
        } catch (QuotaViolationException e) {
            return "" + (rate != null ? QuotaUtils.throttleTime(e, now) : ControllerMutationQuotaManager.throttleTimeMs(e));
        }
    }

    static String take(double partitions) {
        try {
            mutations.record(partitions);
            return "made " + mutations.throttleTime();
        } catch (ThrottlingQuotaExceededException e) {
            return "refused " + mutations.throttleTime();
        }
    }

    static Optional<ConfigEntity> entity(String word, boolean isUser) {
        if (word.equals("*")) return Optional.empty();
        if (word.equals("<default>")) {
            return Optional.of(isUser ? ClientQuotaManager.DEFAULT_USER_ENTITY : ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
        }
        return Optional.of(isUser ? new ClientQuotaManager.UserEntity(word) : new ClientQuotaManager.ClientIdEntity(word));
    }

    static String resolve(String user, String clientId) throws Exception {
        Session session = new Session(new KafkaPrincipal("User", user), InetAddress.getLoopbackAddress());
        Map<String, String> tags = manager.getOrCreateQuotaSensors(session, clientId).metricTags();
        double limit = manager.quota(user, clientId).bound();
        if (limit == (double) Long.MAX_VALUE) return "-";
        return limit + " " + (tags.get("user").isEmpty() ? "*" : "user") + " " + (tags.get("client-id").isEmpty() ? "*" : "client");
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "average":
                    config = new MetricConfig().samples(Integer.parseInt(words[1]))
                        .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS);
                    average = new Avg();
                    continue;
                case "add":
                    average.record(config, Double.parseDouble(words[1]), Long.parseLong(words[2]));
                    output.append(Double.doubleToRawLongBits(average.measure(config, Long.parseLong(words[2]))));
                    break;
                case "rate":
                case "bucket":
                    begin(words);
                    continue;
                case "record":
                    output.append(record(Double.parseDouble(words[1]), Long.parseLong(words[2])));
                    break;
                case "request":
                    clock.ms = Long.parseLong(words[2]);
                    mutations = words[1].equals("strict")
                        ? new StrictControllerMutationQuota(clock, sensor) : new PermissiveControllerMutationQuota(clock, sensor);
                    continue;
                case "take":
                    output.append(take(Double.parseDouble(words[1])));
                    break;
                case "measure":
                    long now = Long.parseLong(words[1]);
                    output.append(Double.doubleToRawLongBits(rate != null ? rate.measure(config, now) : bucket.measure(config, now)));
                    break;
                case "limits":
                    if (manager != null) manager.shutdown();
                    metrics = new Metrics();
                    manager = new ClientQuotaManager(new ClientQuotaManagerConfig(), metrics, QuotaType.PRODUCE, Time.SYSTEM, "test");
                    continue;
                case "set":
                    manager.updateQuota(entity(words[1], true), entity(words[2], false), Optional.of(new Quota(Double.parseDouble(words[3]), true)));
                    continue;
                case "resolve":
                    output.append(resolve(words[1], words[2]));
                    break;
            }
            output.append('\n');
        }
        System.out.print(output);
        System.out.flush();
        System.exit(0);
    }
}
