/*
 * A librdkafka producer that goes as fast as it can: the client whose cost every broker shares.
 *
 *     perf BOOTSTRAP TOPIC PARTITIONS RECORDS SIZE [key=value...]
 *
 * Produces RECORDS values of SIZE bytes to the partitions in turn, waits for every delivery report, and prints one
 * JSON object: records, failed, seconds. Further arguments are librdkafka settings.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long delivered, failed;

static void on_delivery(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque) {
    (void)producer;
    (void)opaque;
    if (message->err)
        failed++;
    else
        delivered++;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void set(rd_kafka_conf_t *config, const char *key, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(config, key, value, why, sizeof why) != RD_KAFKA_CONF_OK) {
        fprintf(stderr, "%s\n", why);
        exit(2);
    }
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: perf BOOTSTRAP TOPIC PARTITIONS RECORDS SIZE [key=value...]\n");
        return 2;
    }
    long partitions = atol(argv[3]), records = atol(argv[4]);
    size_t size = (size_t)atol(argv[5]);
    rd_kafka_conf_t *config = rd_kafka_conf_new();
    set(config, "bootstrap.servers", argv[1]);
    set(config, "acks", "1");
    set(config, "queue.buffering.max.messages", "1000000");
    set(config, "queue.buffering.max.kbytes", "1048576");
    for (int i = 6; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals) {
            fprintf(stderr, "not key=value: %s\n", argv[i]);
            return 2;
        }
        *equals = '\0';
        set(config, argv[i], equals + 1);
    }
    rd_kafka_conf_set_dr_msg_cb(config, on_delivery);
    char why[256];
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, config, why, sizeof why);
    if (!producer) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer, argv[2], NULL);
    /* Bytes that no codec could shrink, were one set; the same for every record. */
    char *value = malloc(size);
    srand(1);
    for (size_t i = 0; i < size; i++)
        value[i] = (char)rand();

    double began = now_s();
    for (long i = 0; i < records; i++) {
        while (rd_kafka_produce(topic, (int32_t)(i % partitions), 0, value, size, NULL, 0, NULL) != 0) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                fprintf(stderr, "%s\n", rd_kafka_err2str(rd_kafka_last_error()));
                return 1;
            }
            rd_kafka_poll(producer, 10);
        }
        if (i % 1000 == 0)
            rd_kafka_poll(producer, 0);
    }
    while (delivered + failed < records)
        rd_kafka_poll(producer, 100);
    double seconds = now_s() - began;
    printf("{\"records\": %ld, \"failed\": %ld, \"seconds\": %.6f}\n", delivered, failed, seconds);

    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(producer);
    free(value);
    return failed > 0;
}
