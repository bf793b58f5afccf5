import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.UnaryOperator;
import java.util.regex.Pattern;

/**
 * Runs scenarios and prints what became of each as one line of JSON: it passed, it was refused by name, or it is
 * wrong, which is a result, an error or a silence that the real service would not give.
 */
final class Report {
  interface Scenario {
    void run() throws Exception;
  }

  /** A scenario that is given a function which makes names that are its alone. */
  interface Own {
    void run(UnaryOperator<String> own) throws Exception;
  }

  static final class Mismatch extends RuntimeException {
    Mismatch(String what) {
      super(what);
    }
  }

  private static final Pattern REFUSAL = Pattern.compile("not supported|not implemented|NotImplemented|does not support", Pattern.CASE_INSENSITIVE);
  private static final int SECONDS = 30; // for one scenario; only one that hangs needs them

  private final Map<String, Own> scenarios = new LinkedHashMap<>();
  private final PrintStream out = System.out;
  private final String area;

  Report(String area) {
    this.area = area;
    System.setOut(System.err); // what libraries print is no result
  }

  Report add(String name, Scenario scenario) {
    return add(name, own -> scenario.run());
  }

  Report add(String name, Own scenario) {
    scenarios.put(name, scenario);
    return this;
  }

  void run() {
    run(1);
  }

  /** Goes through the scenarios, so many at a time. */
  void run(int atOnce) {
    ExecutorService threads = Executors.newCachedThreadPool();
    Semaphore free = new Semaphore(atOnce);
    List<Future<?>> all = new ArrayList<>();
    scenarios.forEach((name, scenario) -> {
      free.acquireUninterruptibly();
      int n = all.size();
      all.add(threads.submit(() -> {
        one(threads, name, () -> scenario.run(kind -> kind + n));
        free.release();
      }));
    });
    free.acquireUninterruptibly(atOnce);
    out.flush();
    Runtime.getRuntime().halt(0); // whatever thread of a client still waits
  }

  private void one(ExecutorService threads, String name, Scenario scenario) {
    String outcome = "passed";
    String detail = "";
    try {
      threads.submit((Callable<Void>) () -> {
        scenario.run();
        return null;
      }).get(SECONDS, TimeUnit.SECONDS);
    } catch (TimeoutException | InterruptedException e) {
      outcome = "wrong";
      detail = "no answer within " + SECONDS + " s";
    } catch (Exception e) {
      Throwable cause = e.getCause() == null ? e : e.getCause();
      detail = cause.toString();
      outcome = !(cause instanceof Mismatch) && REFUSAL.matcher(detail).find() ? "refused" : "wrong";
    }
    out.printf("{\"area\": %s, \"name\": %s, \"outcome\": %s, \"detail\": %s}%n", quote(area), quote(name), quote(outcome), quote(detail));
  }

  private static String quote(String s) {
    return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
  }

  static void same(Object want, Object got, String what) {
    if (!Objects.equals(want, got)) {
      throw new Mismatch(what + ": want " + want + ", got " + got);
    }
  }

  /** Runs an action that must fail with an error of this class, and returns it. */
  static <T extends Throwable> T fails(Class<T> kind, Scenario action, String what) {
    try {
      action.run();
    } catch (Throwable e) {
      if (kind.isInstance(e)) {
        return kind.cast(e);
      }
      throw new Mismatch(what + ": failed with " + e);
    }
    throw new Mismatch(what + ": succeeded");
  }
}
