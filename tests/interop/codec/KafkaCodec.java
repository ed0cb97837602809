import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;

import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.errors.RetriableException;

/**
 * Reads "class version hex" lines, parses each with Kafka's generated class, and prints what that class writes
 * (hex), a tab, and its values as JSON. With the argument "errors" it prints Kafka's error codes instead.
 */
public class KafkaCodec {
    public static void main(String[] args) throws Exception {
        if (args.length == 1 && args[0].equals("errors")) {
            for (Errors error : Errors.values()) {
                boolean retriable = error.exception() instanceof RetriableException;
                System.out.println(error.code() + " " + error.name() + " " + retriable);
            }
            return;
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", 3);
            short version = Short.parseShort(words[1]);
            ApiMessage message = (ApiMessage) Class.forName(words[0]).getDeclaredConstructor().newInstance();
            ByteBufferAccessor input = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(words[2])));
            message.read(input, version);
            if (input.remaining() != 0) {
                throw new IllegalStateException(line + ": " + input.remaining() + " bytes left over");
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            byte[] bytes = new byte[message.size(cache, version)];
            message.write(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), cache, version);
            System.out.println(HexFormat.of().formatHex(bytes) + "\t" + json(message, version));
        }
    }

    private static Object json(ApiMessage message, short version) throws Exception {
        Class<?> type = message.getClass();
        Method write = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class);
        return write.invoke(null, message, version);
    }
}
