// How fast the code of a job comes to its nodes (ADR 131), compared in the same run with what one TLS stream for each
// node carries, and with such streams whose receivers hash and write what comes, as a node has to. Everything is on
// this machine, over TCP: the service's end, and the nodes as threads. Prints one line of JSON.
//   code_bench [--nodes N] [--megabytes N] [--rounds N]
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gyre/base/checksum.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"
#include "gyre/jobs/hub/hub.h"
#include "gyre/jobs/node/code_cache.h"
#include "gyre/jobs/orders/messages.h"
#include "gyre/jobs/orders/secure_connection.h"
#include "gyre/net/handshake.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"

namespace gyre::jobs {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLongest{120};

struct Options {
  std::size_t nodes = 4;
  std::size_t megabytes = 100;
  std::size_t rounds = 5;
};

double seconds_of(const std::function<void()>& what) {
  const auto start = SteadyClock::now();
  what();
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

void run_all(std::size_t count, const std::function<void(std::size_t)>& what) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back([&what, i] { what(i); });
  for (std::thread& thread : threads) thread.join();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

using Take = std::function<void(std::size_t node, std::span<const std::byte>)>;

/// The same bytes, sent as they are.
double time_streams(const Options& options, const Bytes& archive, const net::JobKey& key, const Take& take) {
  const Deadline deadline = Deadline::after(kLongest);
  const UniqueFd listener = net::listen_on(net::parse_endpoint("tcp:127.0.0.1:0"));
  const net::Endpoint place = net::local_endpoint(listener.get());
  std::vector<std::unique_ptr<net::Stream>> from(options.nodes);
  std::vector<std::unique_ptr<net::Stream>> to(options.nodes);
  for (std::size_t i = 0; i < options.nodes; ++i) {
    std::thread connector(
        [&] { to[i] = orders::connect_securely(place, key, {.purpose = orders::Purpose::kShell}, deadline); });
    UniqueFd connection;
    while (!connection) connection = net::accept_from(listener.get());
    from[i] = orders::accept_securely(std::move(connection), key, {.purpose = orders::Purpose::kShell}, deadline);
    connector.join();
  }
  return seconds_of([&] {
    run_all(2 * options.nodes, [&](std::size_t i) {
      if (i < options.nodes) return net::write_exactly(*from[i], archive, deadline);
      Bytes room(orders::kMostCodePieceBytes);
      for (std::size_t left = archive.size(); left > 0;) {
        const std::size_t part = std::min(left, room.size());
        net::read_exactly(*to[i - options.nodes], std::span(room).first(part), deadline);
        take(i - options.nodes, std::span(room).first(part));
        left -= part;
      }
    });
  });
}

double time_files(const Options& options, const Bytes& archive, const net::JobKey& key, const fs::path& folder) {
  struct Receiver {
    UniqueFd file;
    std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash{::EVP_MD_CTX_new(), ::EVP_MD_CTX_free};
  };
  std::vector<Receiver> receivers(options.nodes);
  for (std::size_t i = 0; i < options.nodes; ++i) {
    const fs::path file = folder / fmt::format("file{}", i);
    fs::remove(file);
    receivers[i].file = UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
    ::EVP_DigestInit_ex(receivers[i].hash.get(), ::EVP_sha256(), nullptr);
  }
  return time_streams(options, archive, key, [&](std::size_t node, std::span<const std::byte> bytes) {
    write_all(receivers[node].file.get(), bytes, "a file of the benchmark");
    ::EVP_DigestUpdate(receivers[node].hash.get(), bytes.data(), bytes.size());
  });
}

/// One node: as its node program does it.
class Node {
 public:
  Node(const net::Endpoint& service, const net::JobKey& key, const std::string& name, const fs::path& root)
      : pipe_(
            orders::connect_securely(service, key, {.purpose = orders::Purpose::kService}, Deadline::after(kLongest))),
        cache_(node::NodeFolders(root), 0, null_logger()) {
    fs::create_directories(node::NodeFolders(root).own());
    orders::Registration registration;
    registration.node = name;
    pipe_.send(orders::message_type::kRegister, as_bytes(encode(registration)));
    while (!welcome_) step();
  }
  void fetch(const std::string& attempt, const std::string& sha256) {
    cache_.want(attempt, sha256);
    over_ = false;
    while (!over_) step();
    if (!cache_.open(sha256)) throw Error(ErrorCode::kInternal, "the code has not come");
  }

 private:
  void step() {
    const auto send = [this](std::uint16_t type, std::span<const std::byte> bytes) { pipe_.send(type, bytes); };
    pollfd waits[2] = {{pipe_.fd(), pipe_.events(), 0}, {cache_.changed_fd(), POLLIN, 0}};
    ::poll(waits, 2, 1'000);
    if ((waits[0].revents & POLLOUT) != 0) pipe_.flush();
    while (auto message = pipe_.receive()) {
      if (cache_.obey(*message) || message->type != orders::message_type::kWelcome) continue;
      welcome_ = true;
      cache_.connected(orders::welcome_from(*message).code_window);
    }
    // In this order: what look() has cleared may have made room for a request.
    over_ = cache_.look();
    cache_.send(send);
  }

  orders::MessagePipe pipe_;
  node::CodeCache cache_;
  bool welcome_ = false;
  bool over_ = false;
};

double time_code(const Options& options, const fs::path& folder, const std::string& sha256, const net::JobKey& key) {
  hub::HubOptions settings;
  settings.endpoint = net::parse_endpoint("tcp:127.0.0.1:0");
  settings.key = key;
  hub::Hub service(settings);
  orders::WorkOrder order;
  order.attempt = "job-1";
  order.code_sha256 = sha256;
  order.code_archive = folder / "archive";
  for (std::size_t i = 0; i < options.nodes; ++i) order.nodes.push_back({.id = fmt::format("n{}", i), .address = ""});
  service.submit(order);
  service.admit();
  std::vector<std::unique_ptr<Node>> nodes;
  for (const auto& place : order.nodes) {
    fs::remove_all(folder / place.id);
    nodes.push_back(std::make_unique<Node>(service.endpoint(), key, place.id, folder / place.id));
  }
  return seconds_of([&] { run_all(options.nodes, [&](std::size_t i) { nodes[i]->fetch(order.attempt, sha256); }); });
}

Options options_from(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    std::size_t& place = name == "--nodes" ? options.nodes : name == "--rounds" ? options.rounds : options.megabytes;
    std::from_chars(value.data(), value.data() + value.size(), place);
  }
  return options;
}

int run(const Options& options) {
  std::string name = "/tmp/gyre-code-bench-XXXXXX";
  const fs::path folder = ::mkdtemp(name.data());
  Bytes archive(options.megabytes * 1'000'000);
  Random random(1);
  for (std::byte& byte : archive) byte = static_cast<std::byte>(random.below(256));
  std::ofstream(folder / "archive", std::ios::binary)
      .write(reinterpret_cast<const char*>(archive.data()), static_cast<std::streamsize>(archive.size()));
  const net::JobKey key = net::make_random_key();
  std::vector<double> streams;
  std::vector<double> files;
  std::vector<double> code;
  for (std::size_t round = 0; round <= options.rounds; ++round) {
    const double of_streams = time_streams(options, archive, key, [](std::size_t, std::span<const std::byte>) {});
    const double of_files = time_files(options, archive, key, folder);
    const double of_code = time_code(options, folder, hex(sha256(archive)), key);
    if (round == 0) continue;  // To warm up.
    streams.push_back(of_streams);
    files.push_back(of_files);
    code.push_back(of_code);
  }
  fs::remove_all(folder);
  const double megabytes = static_cast<double>(options.megabytes * options.nodes);
  fmt::print(
      R"({{"bench": "code", "nodes": {}, "megabytes": {}, "rounds": {}, "streams_mb_s": {:.0f}, "files_mb_s": {:.0f}, )"
      R"("code_mb_s": {:.0f}, "share": {:.2f}, "share_of_files": {:.2f}}})"
      "\n",
      options.nodes, options.megabytes, options.rounds, megabytes / median(streams), megabytes / median(files),
      megabytes / median(code), median(streams) / median(code), median(files) / median(code));
  return 0;
}

}  // namespace
}  // namespace gyre::jobs

int main(int argc, char** argv) {
  try {
    return gyre::jobs::run(gyre::jobs::options_from(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "code_bench: {}\n", error.what());
    return 1;
  }
}
