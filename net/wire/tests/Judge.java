import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Lines `message version hex` in; Kafka reads and writes each, and what does not come back the same is printed. */
public class Judge {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        int same = 0;
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", 3);
            try {
                if (Arrays.equals(HexFormat.of().parseHex(words[2]), through(words))) same++;
                else System.out.println("differs: " + line);
            } catch (Exception error) {
                System.out.println(error + ": " + line);
            }
        }
        System.out.println(same + " same");
    }

    /** A message, what clients embed, or a record. */
    private static Class<?> type(String name) throws ClassNotFoundException {
        for (String known : new String[] {"common.message." + name + "Data", "common.message." + name,
                "coordinator.group.generated." + name}) {
            try {
                return Class.forName("org.apache.kafka." + known);
            } catch (ClassNotFoundException next) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static byte[] through(String[] words) throws Exception {
        var data = type(words[0]);
        var message = (Message) data.getDeclaredConstructor().newInstance();
        short version = Short.parseShort(words[1]);
        var in = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(words[2])));
        message.read(in, version);
        if (in.remaining() != 0) throw new IllegalStateException(in.remaining() + " bytes left");
        ByteBuffer out = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[out.remaining()];
        out.get(bytes);
        return bytes;
    }
}
