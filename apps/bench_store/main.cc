// What `gyre bench stage` and `gyre bench store` measure with. Each command prints its figures as one line of JSON.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "apps/bench_store/benches.h"

namespace {

using namespace gyre::bench;

struct Words {
  Reading reading{};
  std::vector<std::string> files{};
  std::string address = "127.0.0.1";
  int port = 0;
  std::size_t message_bytes = 256 * 1024;
  double seconds = 2;
  int threads = 1;
};

void add_read(CLI::App& app, Words& words) {
  CLI::App* verb = app.add_subcommand("read", "Read all files below a folder, or a URL");
  Reading& reading = words.reading;
  verb->add_option("place", reading.place)->required();
  verb->add_option("--threads", reading.threads)->check(CLI::Range(1, 1024));
  verb->add_option("--piece-bytes", reading.piece_bytes)->check(CLI::Range(1, 1 << 30));
  verb->add_option("--seconds", reading.seconds)->check(CLI::Range(0.0, 600.0));
  verb->add_option("--rounds", reading.rounds)->check(CLI::Range(1, 1000));
  verb->add_option_function<int>("--owned-by", [&reading](int node) { reading.owner = node; })
      ->check(CLI::Range(0, 1 << 16));
  verb->add_option_function<int>("--not-owned-by", [&reading](int node) { reading.owner = -2 - node; })
      ->check(CLI::Range(0, 1 << 16));
}

void add_bounds(CLI::App& app, Words& words) {
  CLI::App* inflate = app.add_subcommand("inflate", "Inflate gzip files in memory by libdeflate alone");
  inflate->add_option("files", words.files)->required();
  inflate->add_option("--threads", words.threads)->check(CLI::Range(1, 1024));
  inflate->add_option("--seconds", words.seconds)->check(CLI::Range(0.0, 600.0));
  CLI::App* decrypt = app.add_subcommand("decrypt", "Decrypt blocks in memory with AES-256-GCM alone");
  decrypt->add_option("--threads", words.threads)->check(CLI::Range(1, 1024));
  decrypt->add_option("--seconds", words.seconds)->check(CLI::Range(0.0, 600.0));
  for (const char* name : {"tls-send", "tls-receive"}) {
    CLI::App* verb = app.add_subcommand(name, "One end of a bare TLS connection");
    verb->add_option("address", words.address)->required();
    verb->add_option("port", words.port)->required()->check(CLI::Range(1, 65'535));
    verb->add_option("--message-bytes", words.message_bytes)->check(CLI::Range(1, 1 << 30));
    verb->add_option("--seconds", words.seconds)->check(CLI::Range(0.0, 600.0));
  }
}

nlohmann::json run(const CLI::App& app, const Words& words) {
  if (app.got_subcommand("read")) return read_files(words.reading);
  if (app.got_subcommand("inflate")) return inflate(words.files, words.threads, words.seconds);
  if (app.got_subcommand("decrypt")) return decrypt(words.threads, words.seconds);
  if (app.got_subcommand("tls-receive"))
    return receive_over_tls(words.address, words.port, words.message_bytes, words.seconds);
  send_over_tls(words.address, words.port, words.message_bytes);
  return nlohmann::json::object();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // A sender ends when the receiver has enough.
  CLI::App app("Reads files and moves bytes for `gyre bench stage` and `gyre bench store`.");
  Words words;
  add_read(app, words);
  add_bounds(app, words);
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  try {
    std::puts(run(app, words).dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gyre-bench-store: %s\n", error.what());
    return 1;
  }
  return 0;
}
