// The daemon's door: many programs come at once, and some of them change the nodes at the same time.
#include "gyre/store/node/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/net/endpoint.h"
#include "gyre/net/socket.h"
#include "gyre/store/node/client.h"
#include "gyre/store/node/flights.h"
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

 private:
  fs::path root_ = fs::temp_directory_path() / ("gyre-server-" + std::to_string(::getpid()) + "-" +
                                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
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
