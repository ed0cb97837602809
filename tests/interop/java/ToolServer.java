import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of command-line tools in one JVM, because a JVM for each costs a second.
 *
 * A line in: number, class name, then standard input and arguments, each in base64, parted by spaces.
 * A line out: number, exit code, standard output and standard error in base64.
 * Commands run beside each other, each in a thread; threads that a tool starts write to its own output.
 */
public final class ToolServer {
    private static final InheritableThreadLocal<Command> CURRENT = new InheritableThreadLocal<>();

    private static final class Ended extends Error {
        Ended() {
            super("exit", null, false, false);
        }
    }

    private static final class Command {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final List<Runnable> hooks = Collections.synchronizedList(new ArrayList<>());
        final InputStream in;
        volatile Integer code;

        Command(byte[] input) {
            in = new ByteArrayInputStream(input);
        }
    }

    private static final class Route extends OutputStream {
        private final boolean errors;
        private final PrintStream otherwise;

        Route(boolean errors, PrintStream otherwise) {
            this.errors = errors;
            this.otherwise = otherwise;
        }

        private OutputStream target() {
            Command command = CURRENT.get();
            return command == null ? otherwise : errors ? command.err : command.out;
        }

        @Override
        public void write(int b) throws IOException {
            target().write(b);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            target().write(bytes, from, length);
        }
    }

    private static final class Input extends InputStream {
        @Override
        public int read() throws IOException {
            Command command = CURRENT.get();
            return command == null ? -1 : command.in.read();
        }

        @Override
        public int read(byte[] bytes, int from, int length) throws IOException {
            Command command = CURRENT.get();
            return command == null ? -1 : command.in.read(bytes, from, length);
        }

        @Override
        public int available() throws IOException {
            Command command = CURRENT.get();
            return command == null ? 0 : command.in.available();
        }
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = System.out;
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(new PrintStream(new Route(false, System.err), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new Route(true, System.err), true, StandardCharsets.UTF_8));
        System.setIn(new Input());
        Exit.setExitProcedure((code, message) -> ended(code, message));
        Exit.setHaltProcedure((code, message) -> ended(code, message));
        Exit.setShutdownHookAdder((name, hook) -> CURRENT.get().hooks.add(hook));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            Thread thread = new Thread(() -> serve(words, answers), "command-" + words[0]);
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    private static void ended(int code, String message) {
        Command command = CURRENT.get();
        if (message != null) {
            System.err.println(message);
        }
        if (command.code == null) {
            command.code = code;
        }
        throw new Ended();
    }

    private static void serve(String[] words, PrintStream answers) {
        Command command = new Command(decode(words[2]));
        CURRENT.set(command);
        String[] arguments = new String[words.length - 3];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = new String(decode(words[i + 3]), StandardCharsets.UTF_8);
        }
        try {
            Class.forName(words[1]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException e) {
            failed(command, e.getCause());
        } catch (Throwable e) {
            failed(command, e);
        }
        for (Runnable hook : List.copyOf(command.hooks)) {
            try {
                hook.run();
            } catch (Throwable e) {
                failed(command, e);
            }
        }
        int code = command.code == null ? 0 : command.code;
        System.out.flush();
        System.err.flush();
        synchronized (answers) {
            answers.println(words[0] + " " + code + " " + encode(command.out) + " " + encode(command.err));
            answers.flush();
        }
    }

    private static void failed(Command command, Throwable cause) {
        if (cause instanceof Ended) {
            return;
        }
        cause.printStackTrace();
        if (command.code == null) {
            command.code = 1;
        }
    }

    private static byte[] decode(String word) {
        return Base64.getDecoder().decode(word.substring(1));
    }

    private static String encode(ByteArrayOutputStream bytes) {
        return "=" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
