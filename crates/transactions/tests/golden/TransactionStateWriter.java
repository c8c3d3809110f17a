// Writes records of __transaction_state as Apache Kafka's own classes encode them: a line for each, with the level of
// transaction.version, what the record says, its key and its value in hexadecimal. Run with the jars of compat/kafka-jars:
//   java -cp 'libs/*' TransactionStateWriter.java > transaction-state.txt

import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.coordinator.transaction.*;
import org.apache.kafka.server.common.TransactionVersion;

public class TransactionStateWriter {
    static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    static void write(int level, String id, TransactionState state, long producer, long previous, long next, int epoch,
            int client, Set<TopicPartition> partitions) {
        TxnTransitMetadata metadata = new TxnTransitMetadata(producer, previous, next, (short) epoch, (short) (epoch - 1),
            60000, state, new HashSet<>(partitions), state == TransactionState.EMPTY ? -1 : 1700000000000L, 1700000001234L,
            TransactionVersion.fromFeatureLevel((short) client));
        byte[] value = TransactionLog.valueToBytes(metadata, TransactionVersion.fromFeatureLevel((short) level));
        System.out.println(level + " " + id + " " + state.stateName() + " " + producer + " " + previous + " " + next + " " + epoch
            + " " + client + " " + partitions.size() + " " + hex(TransactionLog.keyToBytes(id)) + " " + hex(value));
    }

    public static void main(String[] args) {
        Set<TopicPartition> none = Set.of();
        Set<TopicPartition> one = Set.of(new TopicPartition("orders", 3));
        // In an order of their own, so that there is one way to write them.
        Set<TopicPartition> two = new LinkedHashSet<>(List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 1)));
        for (int level = 0; level <= 2; level++) {
            int client = level == 2 ? 2 : 0;
            write(level, "app", TransactionState.EMPTY, 7, -1, -1, 0, 0, none);
            write(level, "größer", TransactionState.ONGOING, 7, 7, -1, 1, client, one);
            write(level, "app", TransactionState.PREPARE_COMMIT, 7, 7, level == 2 ? 4000 : -1, 32766, client, two);
            write(level, "app", TransactionState.PREPARE_ABORT, 7, 7, -1, 2, client, one);
            write(level, "app", TransactionState.COMPLETE_COMMIT, 4000, 7, -1, 0, client, none);
            write(level, "app", TransactionState.COMPLETE_ABORT, 7, 7, -1, 3, client, none);
        }
    }
}
