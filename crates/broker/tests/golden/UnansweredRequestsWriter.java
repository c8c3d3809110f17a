// Writes what Apache Kafka's own classes answer to a forwarded request that no controller answers: a line for each request,
// version and error, with the API's key, the version, the error's code, the request and the answer, both in hexadecimal and
// without a header. Run with the jars of compat/kafka-jars:
//   java -cp 'libs/*' UnansweredRequestsWriter.java > unanswered-requests.txt

import java.util.*;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.*;

public class UnansweredRequestsWriter {
    static String hex(Message message, short version) {
        var buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static void write(AbstractRequest request) {
        // As ForwardingManagerImpl makes them.
        for (Throwable error : List.of(new TimeoutException(), Errors.UNKNOWN_SERVER_ERROR.exception())) {
            var answer = request.getErrorResponse(error);
            System.out.println(request.apiKey().id + " " + request.version() + " " + Errors.forException(error).code() + " "
                + hex(request.data(), request.version()) + " " + hex(answer.data(), request.version()));
        }
    }

    static void write(AbstractRequest.Builder<?> builder) {
        for (short version = builder.oldestAllowedVersion(); version <= builder.latestAllowedVersion(); version++) {
            write(builder.build(version));
        }
    }

    public static void main(String[] args) {
        var create = new CreateTopicsRequestData();
        create.topics().add(new CreateTopicsRequestData.CreatableTopic().setName("a").setNumPartitions(3).setReplicationFactor((short) 1));
        create.topics().add(new CreateTopicsRequestData.CreatableTopic().setName("b").setNumPartitions(1).setReplicationFactor((short) 1));
        write(new CreateTopicsRequest.Builder(create));
        var delete = new DeleteTopicsRequestData().setTopicNames(List.of("a", "b"));
        for (short version = 1; version <= 5; version++) {
            write(new DeleteTopicsRequest.Builder(delete).build(version));
        }
        write(new DeleteTopicsRequest.Builder(new DeleteTopicsRequestData().setTopics(List.of(
            new DeleteTopicsRequestData.DeleteTopicState().setName("a"),
            new DeleteTopicsRequestData.DeleteTopicState().setName(null).setTopicId(new Uuid(1, 2))))).build((short) 6));
        var acl = new CreateAclsRequestData.AclCreation().setResourceType((byte) 2).setResourceName("a").setResourcePatternType((byte) 3)
            .setPrincipal("User:a").setHost("*").setOperation((byte) 3).setPermissionType((byte) 3);
        write(new CreateAclsRequest.Builder(new CreateAclsRequestData().setCreations(List.of(acl, acl))));
        write(new DeleteAclsRequest.Builder(new DeleteAclsRequestData().setFilters(List.of(
            new DeleteAclsRequestData.DeleteAclsFilter().setResourceTypeFilter((byte) 1).setResourceNameFilter("a").setPatternTypeFilter((byte) 1)
                .setPrincipalFilter(null).setHostFilter(null).setOperation((byte) 1).setPermissionType((byte) 1)))));
        var grow = new CreatePartitionsRequestData();
        grow.topics().add(new CreatePartitionsRequestData.CreatePartitionsTopic().setName("a").setCount(3).setAssignments(null));
        write(new CreatePartitionsRequest.Builder(grow));
        var partitions = List.of(new TopicPartition("a", 0), new TopicPartition("a", 1));
        write(new ElectLeadersRequest.Builder(ElectionType.PREFERRED, partitions, 1000));
        write(new ElectLeadersRequest.Builder(ElectionType.PREFERRED, null, 1000));
        write(new AlterPartitionReassignmentsRequest.Builder(new AlterPartitionReassignmentsRequestData().setTopics(List.of(
            new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName("a").setPartitions(List.of(
                new AlterPartitionReassignmentsRequestData.ReassignablePartition().setPartitionIndex(3).setReplicas(List.of(1))))))));
        write(new ListPartitionReassignmentsRequest.Builder(new ListPartitionReassignmentsRequestData().setTopics(List.of(
            new ListPartitionReassignmentsRequestData.ListPartitionReassignmentsTopics().setName("a").setPartitionIndexes(List.of(3, 4))))));
        write(new ListPartitionReassignmentsRequest.Builder(new ListPartitionReassignmentsRequestData().setTopics(null)));
        var quotas = new AlterClientQuotasRequestData().setEntries(List.of(new AlterClientQuotasRequestData.EntryData()
            .setEntity(List.of(new AlterClientQuotasRequestData.EntityData().setEntityType("user").setEntityName(null)))
            .setOps(List.of(new AlterClientQuotasRequestData.OpData().setKey("producer_byte_rate").setValue(1.0)))));
        write(new AlterClientQuotasRequest(quotas, (short) 0));
        write(new AlterClientQuotasRequest(quotas, (short) 1));
        for (short version = 1; version <= 3; version++) {
            var token = new CreateDelegationTokenRequestData().setMaxLifetimeMs(1);
            if (version >= 3) {
                token.setOwnerPrincipalType("User").setOwnerPrincipalName("a");
            }
            write(new CreateDelegationTokenRequest.Builder(token).build(version));
        }
        write(new RenewDelegationTokenRequest.Builder(new RenewDelegationTokenRequestData().setHmac(new byte[] {1, 2}).setRenewPeriodMs(3)));
        write(new ExpireDelegationTokenRequest.Builder(new ExpireDelegationTokenRequestData().setHmac(new byte[] {1, 2}).setExpiryTimePeriodMs(3)));
        write(new AlterUserScramCredentialsRequest.Builder(new AlterUserScramCredentialsRequestData()
            .setDeletions(List.of(
                new AlterUserScramCredentialsRequestData.ScramCredentialDeletion().setName("z").setMechanism((byte) 1),
                new AlterUserScramCredentialsRequestData.ScramCredentialDeletion().setName("a").setMechanism((byte) 1)))
            .setUpsertions(List.of(
                new AlterUserScramCredentialsRequestData.ScramCredentialUpsertion().setName("a").setMechanism((byte) 2).setIterations(4096)))));
        write(new DescribeQuorumRequest.Builder(DescribeQuorumRequest.singletonRequest(new TopicPartition("__cluster_metadata", 0))));
        var features = new UpdateFeaturesRequestData();
        features.featureUpdates().add(new UpdateFeaturesRequestData.FeatureUpdateKey().setFeature("group.version").setMaxVersionLevel((short) 1));
        write(new UpdateFeaturesRequest.Builder(features));
        write(new UnregisterBrokerRequest.Builder(new UnregisterBrokerRequestData().setBrokerId(3)));
        write(new AddRaftVoterRequest.Builder(new AddRaftVoterRequestData().setVoterId(3)));
        write(new RemoveRaftVoterRequest.Builder(new RemoveRaftVoterRequestData().setVoterId(3)));
    }
}
