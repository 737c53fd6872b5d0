// The daemon's door: many programs come at once, and some of them change the nodes at the same time.
#include "gyre/store/node/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/message.h"
#include "gyre/net/socket.h"
#include "gyre/net/stream.h"
#include "gyre/store/node/client.h"
#include "gyre/store/node/flights.h"
#include "gyre/store/node/wire.h"
#include "gyre/store/sources/local.h"

namespace gyre::store::node {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// A store of this node alone, of one file in a folder, with its daemon's door.
class OneNode {
 public:
  explicit OneNode(std::size_t most_connections = Server::kMostConnections) {
    fs::create_directories(root_ / "set");
    std::ofstream(root_ / "set/a", std::ios::binary) << kContents;
    sources_.push_back(open_local_source(root_ / "set"));
    std::vector<Listing> listings;
    listings.push_back({.source = sources_[0]->name(), .objects = sources_[0]->list({}, milliseconds(1'000))});
    lock_ = ChunkFolder(folder()).take();
    NodeOptions options;
    options.members.nodes.push_back({.id = 0, .endpoint = "tcp:127.0.0.1:1"});
    options.ahead = false;  // Nothing opens files by itself.
    options.logger = std::make_shared<spdlog::logger>("store", log_);
    node_ = std::make_unique<Node>(Catalog(make_manifest(std::move(listings), Inflation::kNone)), sources_,
                                   ChunkFolder(folder()), std::move(options));
    server_ = std::make_unique<Server>(*node_, node_->folder(), std::nullopt, most_connections);
  }
  ~OneNode() {
    server_.reset();
    node_.reset();
    fs::remove_all(root_);
  }
  OneNode(const OneNode&) = delete;
  OneNode& operator=(const OneNode&) = delete;

  static constexpr const char* kContents = "what the file holds";

  fs::path folder() const { return root_ / "store"; }
  std::shared_ptr<Client> client(milliseconds limit = milliseconds(20'000)) const {
    return Client::open(folder(), limit);
  }
  /// A program that has connected, and asks nothing.
  UniqueFd silent_connection() const {
    return net::connect_to({.kind = net::Endpoint::Kind::kUnix, .host = node_->folder().socket().string()},
                           Deadline::after(milliseconds(5'000)));
  }
  /// Once the daemon has ended, or rests.
  std::string log() const { return said_.str(); }

 private:
  fs::path root_ = fs::temp_directory_path() / ("gyre-server-" + std::to_string(::getpid()) + "-" +
                                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::ostringstream said_{};
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> log_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(said_);
  std::vector<std::unique_ptr<Source>> sources_{};
  UniqueFd lock_;
  std::unique_ptr<Node> node_{};
  std::unique_ptr<Server> server_{};
};

std::string read(Client& client) {
  std::string contents(std::string_view(OneNode::kContents).size(), ' ');
  client.read(0, 0, std::as_writable_bytes(std::span(contents)));
  return contents;
}

TEST(Server, a_connection_too_many_takes_the_place_of_one_that_rests) {
  // Programs keep connections for later: they must not keep others out.
  const OneNode node(2);
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(node.client());
  for (int round = 0; round < 3; ++round) {
    for (const auto& client : clients) EXPECT_NE(client->status().find("\"files\": 1"), std::string::npos);
  }
  EXPECT_EQ(read(*clients.front()), OneNode::kContents);
}

TEST(Server, what_finds_no_room_is_read_once) {
  const OneNode node;
  fs::remove_all(node.folder() / "new");  // Where chunks are written first.
  const auto client = node.client();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(*client), OneNode::kContents);
  EXPECT_NE(client->status().find("\"source_bytes\": 19"), std::string::npos) << client->status();
}

TEST(Server, a_connection_too_many_is_told_so_and_served_when_there_is_room) {
  // It was closed without a word, which looked like a daemon that has died.
  const OneNode node(2);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(node.silent_connection());
  try {
    node.client(milliseconds(500));
    ADD_FAILURE() << "it was served";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the store's daemon has 2 connections, and takes no more"));
  }
  std::thread later([&] { EXPECT_EQ(read(*node.client()), OneNode::kContents); });
  silent.clear();
  later.join();
}

std::size_t open_files() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// While one lives, this process can open `more` files, and no further ones.
class FewFiles {
 public:
  explicit FewFiles(rlim_t more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const UniqueFd next(::dup(0));  // The lowest number that is free, with no gaps above it.
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.get()) + more;
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

TEST(Server, without_descriptors_it_pauses_says_so_once_and_goes_on_afterwards) {
  // What waited kept the listener ready: the thread used a core, and wrote the same line a hundred thousand times.
  const OneNode node;
  UniqueFd waiting;
  {
    const FewFiles own(1);
    waiting = node.silent_connection();
    std::this_thread::sleep_for(milliseconds(350));  // Three pauses.
  }
  EXPECT_EQ(read(*node.client()), OneNode::kContents);
  const std::string log = node.log();
  EXPECT_THAT(log, ::testing::HasSubstr("the store cannot accept a connection: accepting a connection: Too many open"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1) << log.substr(0, 1'000);
}

TEST(Server, without_descriptors_a_connection_that_rests_makes_room) {
  const OneNode node;
  const auto resting = node.client();
  const FewFiles own(1);
  UniqueFd waiting = node.silent_connection();
  // The daemon closes the one that rests, and takes the new one; that is seen in the answer.
  const auto stream = net::make_socket_stream(std::move(waiting), "the daemon");
  net::send_message(*stream, message_type::kGetStatus, {}, Deadline::after(milliseconds(10'000)));
  EXPECT_EQ(net::receive_message(*stream, Deadline::after(milliseconds(10'000))).type, message_type::kStatus);
}

TEST(Server, a_connection_that_is_over_gives_its_descriptor_back_at_once) {
  // It was kept until the next connection came, which could not come without one.
  const OneNode node;
  const std::size_t before = open_files();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(node.silent_connection());
  const auto patience = SteadyClock::now() + milliseconds(10'000);
  while (open_files() < before + 20 && SteadyClock::now() < patience) std::this_thread::yield();
  EXPECT_EQ(open_files(), before + 20) << "both ends of each";
  silent.clear();
  while (open_files() > before && SteadyClock::now() < patience) std::this_thread::yield();
  EXPECT_EQ(open_files(), before);
}

TEST(Server, no_change_of_the_nodes_is_lost) {
  // Each thread adds a node to those that there are, as people do with two commands.
  const OneNode node;
  constexpr std::uint32_t kThreads = 3;
  std::atomic<int> changes{0};
  std::vector<std::thread> threads;
  for (std::uint32_t id = 1; id <= kThreads; ++id) {
    threads.emplace_back([&, id] {
      const auto client = node.client();
      for (Members now = client->members(); !now.has(id); ++changes) {
        Members wanted = now;
        wanted.nodes.push_back({.id = id, .endpoint = "tcp:127.0.0.1:1"});
        now = client->change_members(parse_members(to_string(wanted), now.epoch + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Members all = node.client()->members();
  EXPECT_EQ(all.nodes.size(), kThreads + 1) << to_string(all);
  EXPECT_EQ(all.epoch, kThreads + 1) << "of " << changes
                                     << " changes those that were made of an older list are refused";
}

TEST(Flights, what_is_fetched_ahead_from_a_silent_source_leaves_threads_for_others) {
  // All threads waited for one source, and with them the readers of another one.
  std::vector<Object> objects;
  for (int i = 0; i < 20; ++i) objects.push_back({.name = std::to_string(i), .size_bytes = 10, .version = "v"});
  std::vector<Listing> listings;
  listings.push_back({.source = "here", .objects = std::move(objects)});
  const Catalog catalog(make_manifest(std::move(listings), Inflation::kNone));
  std::atomic<std::size_t> next{1};
  std::atomic<int> silent{0};
  Flights flights(
      8, 1'000,
      [&](const Piece& chunk, std::span<std::byte>, const std::stop_token& stop) {
        if (chunk.entry == 0) return;
        ++silent;
        while (!stop.stop_requested()) std::this_thread::yield();
        throw Error(ErrorCode::kAborted, "stopped");
      },
      [&] {
        const std::size_t entry = next++;
        return entry < 20 ? Flights::Step{.chunk = catalog.chunk(entry, 0)} : Flights::Step{.is_last = true};
      });
  while (silent < 6) std::this_thread::yield();
  EXPECT_EQ(flights.demand(catalog.chunk(0, 0), [] {})->size(), 10U);
  EXPECT_EQ(silent, 6);
}

}  // namespace
}  // namespace gyre::store::node
