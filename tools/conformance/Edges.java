import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.*;
import org.apache.kafka.common.protocol.Errors;
import java.util.*;
import java.util.concurrent.*;

/**
 * Asks a broker for what it must refuse (or not), and prints case, code and message. `kafka_edges` of kafka_cases.py runs it and
 * compares with Kafka 4.4's codes in replication/metadata/tests/data/kafka-4.4-edges.tsv, where a unit test puts the same questions to
 * the controller. Needs broker id 1 and auto.create.topics.enable=false.
 */
public class Edges {
  static Admin c;
  interface Call { Object run() throws Exception; }
  static void say(String name, Call call) {
    try { Object o = call.run(); System.out.println(name+"\t0\t"+(o==null?"":o)); }
    catch (Throwable t) {
      Throwable x = t instanceof ExecutionException ? t.getCause() : t;
      System.out.println(name+"\t"+Errors.forException(x).code()+"\t"+x.getMessage());
    }
  }
  static NewTopic t(String n, int p, int r) { return new NewTopic(n, p, (short) r); }
  static void create(String name, NewTopic t) { say("create "+name, () -> { c.createTopics(List.of(t)).all().get(); return null; }); }
  static void createWith(String k, String v) {
    NewTopic t = t("cfg-"+UUID.randomUUID(),1,1); Map<String,String> m = new HashMap<>(); m.put(k,v); t.configs(m);
    create("config "+k+"="+v, t);
  }
  static void alter(String name, ConfigResource.Type type, String res, AlterConfigOp.OpType op, String k, String v) {
    say("alter "+name, () -> { c.incrementalAlterConfigs(Map.of(new ConfigResource(type,res), List.of(new AlterConfigOp(new ConfigEntry(k,v), op)))).all().get(); return null; });
  }
  static String value(String topic, String k) throws Exception {
    return c.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.TOPIC,topic))).all().get().values().iterator().next().get(k).value();
  }
  static void describe(String name, ConfigResource.Type type, String res) {
    say("describe "+name, () -> { var m = c.describeConfigs(List.of(new ConfigResource(type,res))).all().get(); return null; });
  }
  public static void main(String[] a) throws Exception {
    Properties p = new Properties(); p.put("bootstrap.servers", a[0]); p.put("default.api.timeout.ms","10000"); p.put("request.timeout.ms","5000");
    c = Admin.create(p);
    String x = "e"+Long.toString(System.nanoTime(),36);
    create("plain", t(x+"a",2,1));
    create("exists", t(x+"a",2,1));
    create("empty name", t("",1,1));
    create("dot", t(".",1,1));
    create("dotdot", t("..",1,1));
    create("long", t("x".repeat(250),1,1));
    create("longest", t((x+"y".repeat(249)).substring(0,249),1,1));
    create("blank", t("a b",1,1));
    create("umlaut", t("\u00fc",1,1));
    create("internal name", t("__consumer_offsetsx"+x,1,1));
    create("dotted", t(x+".b",1,1));
    create("collides", t(x+"_b",1,1));
    create("partitions 0", t(x+"p",0,1));
    create("partitions -1", t(x+"p1",-1,1));
    create("partitions -2", t(x+"p",-2,1));
    create("partitions 10001", t(x+"p",10001,1));
    create("replication 0", t(x+"r",1,0));
    create("replication -1", t(x+"r1",1,-1));
    create("replication -2", t(x+"r",1,-2));
    create("replication 2", t(x+"r",1,2));
    create("by hand", new NewTopic(x+"h", Map.of(0,List.of(1),1,List.of(1))));
    create("by hand gap", new NewTopic(x+"h1", Map.of(0,List.of(1),2,List.of(1))));
    create("by hand unknown broker", new NewTopic(x+"h2", Map.of(0,List.of(9))));
    create("by hand twice", new NewTopic(x+"h3", Map.of(0,List.of(1,1))));
    create("by hand empty", new NewTopic(x+"h4", Map.of(0,List.of())));
    create("by hand negative", new NewTopic(x+"h5", Map.of(-1,List.of(1))));
    createWith("retention.m","1"); createWith("retention.ms","x"); createWith("retention.ms","-2"); createWith("retention.ms"," 5 ");
    createWith("retention.ms",""); createWith("retention.ms",null); createWith("retention.bytes","-5"); createWith("cleanup.policy","none"); createWith("cleanup.policy","compact,delete");
    createWith("cleanup.policy","compact,compact"); createWith("cleanup.policy",""); createWith("cleanup.policy"," compact , delete ");
    createWith("compression.type","lzma"); createWith("compression.type","ZSTD"); createWith("preallocate","yes"); createWith("preallocate","TRUE");
    createWith("min.cleanable.dirty.ratio","1.5"); createWith("min.cleanable.dirty.ratio","0.3"); createWith("segment.bytes","10"); createWith("segment.bytes","1048576");
    createWith("segment.bytes","2147483648"); createWith("segment.ms","0"); createWith("max.message.bytes","-1"); createWith("message.timestamp.type","createtime");
    createWith("min.insync.replicas","0"); createWith("min.insync.replicas","5"); createWith("max.compaction.lag.ms","0"); createWith("compression.gzip.level","0");
    createWith("compression.gzip.level","10"); createWith("compression.lz4.level","18"); createWith("remote.storage.enable","true"); createWith("leader.replication.throttled.replicas","0:1,1:2");
    createWith("leader.replication.throttled.replicas","*"); createWith("leader.replication.throttled.replicas","zero"); createWith("local.retention.ms","10"); createWith("internal.segment.bytes","1000");
    createWith("index.interval.bytes","0"); createWith("segment.index.bytes","3"); createWith("message.format.version","3.0"); createWith("retention.ms","+7"); createWith("delete.retention.ms","1e3");
    createWith("message.timestamp.difference.max.ms","5"); createWith("message.downconversion.enable","true"); createWith("min.cleanable.dirty.ratio","NaN"); createWith("unclean.leader.election.enable","true");
    NewTopic lag = t(x+"lag",1,1); lag.configs(Map.of("min.compaction.lag.ms","9","max.compaction.lag.ms","8")); create("lags", lag);
    say("create validate only", () -> { c.createTopics(List.of(t(x+"v",1,1)), new CreateTopicsOptions().validateOnly(true)).all().get(); return c.listTopics().names().get().contains(x+"v"); });
    say("grow same", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(2))).all().get(); return null; });
    say("grow less", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(1))).all().get(); return null; });
    say("grow zero", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(0))).all().get(); return null; });
    say("grow negative", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(-4))).all().get(); return null; });
    say("grow unknown", () -> { c.createPartitions(Map.of(x+"none", NewPartitions.increaseTo(4))).all().get(); return null; });
    say("grow bad name", () -> { c.createPartitions(Map.of("a b", NewPartitions.increaseTo(4))).all().get(); return null; });
    say("grow by hand wrong count", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(4,List.of(List.of(1))))).all().get(); return null; });
    say("grow by hand unknown broker", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(3,List.of(List.of(9))))).all().get(); return null; });
    say("grow by hand two replicas", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(3,List.of(List.of(1,1))))).all().get(); return null; });
    say("grow too much", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(20003))).all().get(); return null; });
    say("grow", () -> { c.createPartitions(Map.of(x+"a", NewPartitions.increaseTo(4))).all().get(); return null; });
    say("delete unknown", () -> { c.deleteTopics(List.of(x+"none")).all().get(); return null; });
    say("delete bad name", () -> { c.deleteTopics(List.of("a b")).all().get(); return null; });
    say("delete unknown id", () -> { c.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).all().get(); return null; });
    var T = ConfigResource.Type.TOPIC; var B = ConfigResource.Type.BROKER;
    var SET = AlterConfigOp.OpType.SET; var DEL = AlterConfigOp.OpType.DELETE; var APP = AlterConfigOp.OpType.APPEND; var SUB = AlterConfigOp.OpType.SUBTRACT;
    alter("topic set", T, x+"a", SET, "retention.ms", "5");
    alter("topic set bad", T, x+"a", SET, "retention.ms", "-9");
    alter("topic set unknown", T, x+"a", SET, "retention.m", "9");
    alter("topic delete unknown", T, x+"a", DEL, "retention.m", "");
    alter("topic delete unset", T, x+"a", DEL, "flush.ms", "");
    alter("topic append non-list", T, x+"a", APP, "retention.ms", "5");
    alter("topic append", T, x+"a", APP, "cleanup.policy", "compact");
    say("value after append", () -> value(x+"a","cleanup.policy"));
    alter("topic append again", T, x+"a", APP, "cleanup.policy", "compact");
    say("value after append again", () -> value(x+"a","cleanup.policy"));
    alter("topic append bad", T, x+"a", APP, "cleanup.policy", "none");
    alter("topic subtract", T, x+"a", SUB, "cleanup.policy", "delete");
    say("value after subtract", () -> value(x+"a","cleanup.policy"));
    alter("topic subtract absent", T, x+"a", SUB, "cleanup.policy", "delete");
    alter("topic subtract last", T, x+"a", SUB, "cleanup.policy", "compact");
    say("value after subtract last", () -> value(x+"a","cleanup.policy"));
    alter("topic subtract default", T, x+"p1", SUB, "cleanup.policy", "compact");
    say("value after subtract default", () -> value(x+"p1","cleanup.policy"));
    alter("topic missing", T, x+"none", SET, "retention.ms", "5");
    alter("topic bad name", T, "a b", SET, "retention.ms", "5");
    alter("topic empty name", T, "", SET, "retention.ms", "5");
    alter("topic set null", T, x+"a", SET, "retention.ms", null);
    alter("broker read only", B, "1", SET, "node.id", "2");
    alter("broker default read only", B, "", SET, "num.partitions", "2");
    alter("broker unknown config", B, "1", SET, "no.such.config", "2");
    alter("broker bad value", B, "1", SET, "log.retention.ms", "abc");
    alter("broker set", B, "1", SET, "log.cleaner.threads", "2");
    alter("broker unset", B, "1", DEL, "log.cleaner.threads", "");
    alter("broker default set", B, "", SET, "log.retention.ms", "700000000");
    say("value from default", () -> value(x+"p1","retention.ms"));
    alter("broker default unset", B, "", DEL, "log.retention.ms", "");
    alter("broker delete unknown", B, "1", DEL, "no.such.config", "");
    alter("broker delete read only", B, "1", DEL, "node.id", "");
    alter("group config", ConfigResource.Type.GROUP, "g", SET, "consumer.session.timeout.ms", "50000");
    alter("unknown type", ConfigResource.Type.UNKNOWN, "g", SET, "x", "5");
    say("alter key twice", () -> { c.incrementalAlterConfigs(Map.of(new ConfigResource(T,x+"a"), List.of(new AlterConfigOp(new ConfigEntry("flush.ms","1"),SET), new AlterConfigOp(new ConfigEntry("flush.ms","2"),SET)))).all().get(); return null; });
    describe("topic", T, x+"a"); describe("topic missing", T, x+"none"); describe("topic bad name", T, "a b"); describe("broker", B, "1"); describe("broker default", B, "");
    describe("logger", ConfigResource.Type.BROKER_LOGGER, "1");
    describe("group", ConfigResource.Type.GROUP, "g"); describe("group empty", ConfigResource.Type.GROUP, ""); describe("client metrics", ConfigResource.Type.CLIENT_METRICS, "m");
    say("cluster operations", () -> c.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true)).authorizedOperations().get().stream().map(Enum::name).sorted().toList());
    say("topic operations", () -> c.describeTopics(List.of(x+"a"), new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames().get().get(x+"a").authorizedOperations().stream().map(Enum::name).sorted().toList());
    say("describe topic missing", () -> c.describeTopics(List.of(x+"none")).allTopicNames().get());
    say("describe topic bad name", () -> c.describeTopics(List.of("a b")).allTopicNames().get());
    say("describe id missing", () -> c.describeTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds().get());
    say("list resources", () -> { c.listConfigResources(Set.of(T), new ListConfigResourcesOptions()).all().get(); return null; });
    say("delete", () -> { c.deleteTopics(List.of(x+"a")).all().get(); return null; });
    System.exit(0);
  }
}
