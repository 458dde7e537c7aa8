import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;

/** Nanoseconds an increment of one LongAdder, a line a round: arguments are threads, rounds, milliseconds. */
public class LongAdderBench {
    private static void increment(LongAdder adder, long times) {
        for (long i = 0; i < times; i += 4) {
            adder.increment();
            adder.increment();
            adder.increment();
            adder.increment();
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int threads = Integer.parseInt(arguments[0]);
        int rounds = Integer.parseInt(arguments[1]);
        long nanoseconds = Long.parseLong(arguments[2]) * 1_000_000;
        // The first rounds are the compiler's.
        long times = 1 << 20;
        for (int round = -5; round < rounds; round++) {
            double each = round(threads, times);
            times = Math.max(1 << 12, (long) (nanoseconds / each)) & ~3L;
            if (round >= 0) {
                System.out.println(each);
            }
        }
    }

    private static double round(int threads, long times) throws InterruptedException {
        LongAdder adder = new LongAdder();
        CountDownLatch start = new CountDownLatch(1);
        double[] each = new double[threads];
        Thread[] all = new Thread[threads];
        for (int number = 0; number < threads; number++) {
            int mine = number;
            all[number] = new Thread(() -> {
                try {
                    start.await();
                } catch (InterruptedException interrupted) {
                    return;
                }
                long begin = System.nanoTime();
                increment(adder, times);
                each[mine] = (System.nanoTime() - begin) / (double) times;
            });
            all[number].start();
        }
        start.countDown();
        double sum = 0;
        for (int number = 0; number < threads; number++) {
            all[number].join();
            sum += each[number];
        }
        if (adder.sum() != threads * times) {
            throw new IllegalStateException("the sum is wrong");
        }
        return sum / threads;
    }
}
