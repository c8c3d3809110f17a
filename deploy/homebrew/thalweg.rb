# Formula of Homebrew for Linux, where the broker runs. scripts/release fills in the address, the version and the digest.
class Thalweg < Formula
  desc "Event streaming broker that speaks Apache Kafka's protocol"
  homepage "@url@"
  url "@url@/v@version@/thalweg-@version@-@target@.tar.gz"
  version "@version@"
  sha256 "@sha256@"
  license "Apache-2.0"

  depends_on :linux

  def install
    bin.install "thalweg"
    doc.install "README.md", "CHANGELOG.md", "NOTICE"
  end

  service do
    run [opt_bin/"thalweg", "serve", "--data-dir", var/"thalweg"]
    keep_alive crashed: true
    log_path var/"log/thalweg.log"
    error_log_path var/"log/thalweg.log"
  end

  test do
    port = free_port
    broker = spawn bin/"thalweg", "serve", "--data-dir", testpath/"data", "--listen", "localhost:#{port}"
    sleep 2
    ENV["THALWEG_BOOTSTRAP_SERVER"] = "localhost:#{port}"
    pipe_output("#{bin}/thalweg produce greetings", "hello\n", 0)
    assert_equal "hello\n", shell_output("#{bin}/thalweg consume greetings --from-beginning --max-messages 1")
  ensure
    Process.kill "TERM", broker
    Process.wait broker
  end
end
