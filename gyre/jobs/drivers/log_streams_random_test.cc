// The two ends of a stream of logs (ADR 127) against a model of what they promise, in random histories of writes, cuts,
// lost connections, ends that start anew, stalls and doubled messages: every byte once and in order, and never more on
// its way than the window. Each history has its seed.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/jobs/drivers/test_support.h"
#include "gyre/jobs/hub/log_store.h"
#include "gyre/jobs/node/log_sender.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;
namespace message_type = orders::message_type;
using conformance::content_of;
using orders::LogPlace;

constexpr std::uint64_t kHistories = 20;
constexpr std::uint64_t kWindow = std::uint64_t{48} << 10;
constexpr int kSteps = 150;

/// What a stream promises, without messages and files of its own: the job has written `written`; the receiver has a
/// beginning of it, which only a cut makes shorter; at the end it has all of it.
struct Model {
  std::map<std::string, std::string> written;  ///< By file.

  void check(const fs::path& received, bool is_end) const {
    for (const auto& [file, text] : written) {
      const std::string got = content_of(received / file);
      if (is_end) {
        ASSERT_EQ(got, text) << file;
      } else if (!cut.contains(file)) {
        ASSERT_EQ(got, text.substr(0, got.size())) << file << " at " << got.size() << " of " << text.size();
      }
    }
  }
  std::map<std::string, bool> cut;  ///< Files that were cut since the receiver heard of it.
};

/// A sender and a receiver, with a connection between them that breaks and doubles.
class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    order_.attempt = "job-1";
    order_.path_segment = "w/job";
    order_.nodes.resize(1);
    order_.sends_logs = true;
    fs::create_directories(folder_);
    start_receiver();
    start_sender();
  }

  void run() {
    for (int step = 0; step < kSteps; ++step) {
      act();
      ASSERT_LE(sender_->in_flight(), kWindow);
      ASSERT_LE(bytes_on_their_way(), 2 * kWindow + 65'536);  // Doubled ones, and what is around them.
      if (step % 10 == 0) model_.check(received(), false);
      if (testing::Test::HasFatalFailure()) return;
    }
    seal_ = true;
    start_sender();
    for (int rounds = 0; !sender_->delivered(); ++rounds) {
      ASSERT_LT(rounds, 100'000) << "it does not come to its end";
      if (!connected_) connect();
      move_some(50);
    }
    model_.check(received(), true);
  }

 private:
  using Wire = std::deque<net::Message>;

  bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
  fs::path received() const { return hub::received_logs(store_, order_); }
  std::uint64_t bytes_on_their_way() const {
    std::uint64_t bytes = 0;
    for (const net::Message& message : up_) bytes += message.payload.size();
    return bytes;
  }

  void act() {
    if (one_in(3)) write();
    if (one_in(40)) cut();
    if (one_in(25)) disconnect();
    if (one_in(40)) start_receiver();
    if (one_in(60)) start_sender();
    if (!connected_ && one_in(3)) connect();
    if (!one_in(4)) move_some(1 + random_.below(20));  // Else it stalls.
  }

  void write() {
    const std::string file = std::string(1, static_cast<char>('a' + random_.below(3))) + ".txt";
    std::string text(one_in(4) ? random_.below(150'000) : random_.below(500), ' ');
    for (char& c : text) c = static_cast<char>('0' + random_.below(64));
    std::ofstream(folder_ / file, std::ios::app | std::ios::binary) << text;
    model_.written[file] += text;
  }
  /// As LogAllowance does: the beginning stays, and something shorter than what went follows.
  void cut() {
    if (model_.written.empty()) return;
    auto& [file, text] = *model_.written.begin();
    text.resize(text.size() / 2);
    fs::resize_file(folder_ / file, text.size());
    model_.cut[file] = true;
    // A cut is seen before anything is written behind it.
    for (int rounds = 0; content_of(received() / file) != text; ++rounds) {
      ASSERT_LT(rounds, 10'000) << "the cut has not come";
      if (!connected_) connect();
      move_some(20);
    }
    model_.cut.clear();
  }

  void start_receiver() {
    disconnect();
    receiver_ = std::make_unique<hub::LogStore>(hub::LogStoreOptions{.folder = store_});
    receiver_->expect(order_);
  }
  void start_sender() {
    disconnect();
    UniqueFd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    UniqueFd again(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    sender_ = std::make_unique<node::LogSender>("job-1", std::move(folder), 0);
    if (seal_) sender_->seal(std::move(again));
  }
  void disconnect() {
    up_.clear();
    down_.clear();
    connected_ = false;
  }
  void connect() {
    connected_ = true;
    sender_->connected(kWindow);
  }

  static net::Message message(std::uint16_t type, std::span<const std::byte> payload) {
    return {.type = type, .payload = Bytes(payload.begin(), payload.end())};
  }

  void move_some(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times && connected_; ++i) {
      sender_->look();
      sender_->send_one([&](std::uint16_t type, std::span<const std::byte> payload) {
        up_.push_back(message(type, payload));
        if (type == message_type::kLogBytes && random_.below(10) == 0) up_.push_back(up_.back());
      });
      if (!up_.empty() && !one_in(3)) receive();
      if (!down_.empty() && !one_in(3)) hear();
    }
  }
  void receive() {
    const net::Message next = std::move(up_.front());
    up_.pop_front();
    if (next.type == message_type::kLogEnd) {
      receiver_->finish("n", orders::attempt_from(next));
      down_.push_back(message(message_type::kLogDone, next.payload));
      return;
    }
    const hub::LogStore::Answer answer =
        next.type == message_type::kLogOpen  ? receiver_->open("n", orders::log_place_from(next))
        : next.type == message_type::kLogCut ? receiver_->cut("n", orders::log_place_from(next))
                                             : receiver_->write("n", orders::log_piece_from(next));
    down_.push_back(message(answer.type, as_bytes(encode(answer.place))));
  }
  void hear() {
    const net::Message next = std::move(down_.front());
    down_.pop_front();
    if (next.type == message_type::kLogDone) return sender_->done();
    const LogPlace place = orders::log_place_from(next);
    next.type == message_type::kLogFrom ? sender_->from(place) : sender_->taken(place);
  }

  conformance::PublicFolder root_;
  const fs::path folder_ = root_.path() / "node";
  const fs::path store_ = root_.path() / "store";
  Random random_;
  orders::WorkOrder order_;
  Model model_;
  std::unique_ptr<node::LogSender> sender_;
  std::unique_ptr<hub::LogStore> receiver_;
  Wire up_;
  Wire down_;
  bool connected_ = false;
  bool seal_ = false;
};

TEST(LogStreams, every_byte_comes_once_and_in_order_whatever_happens) {
  const std::uint64_t first = first_case_of_day();
  for (std::uint64_t seed = first; seed < first + kHistories; ++seed) {
    SCOPED_TRACE("GYRE_TEST_SEED: history " + std::to_string(seed));
    History(seed).run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace gyre::jobs::drivers
