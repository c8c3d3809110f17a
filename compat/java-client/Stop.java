/** Lets a program finish its work at SIGTERM: the process ends when its main thread does. */
final class Stop {
    private volatile boolean asked;

    private Stop() {
    }

    /** Must be called by the main thread. */
    static Stop onSignal() {
        Stop stop = new Stop();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stop.asked = true;
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        return stop;
    }

    /** Whether the process has to end. */
    boolean isAsked() {
        return asked;
    }
}
