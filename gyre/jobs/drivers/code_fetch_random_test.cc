// The two ends of the way of code to a node (ADR 131) against a model of what they promise, in random histories of lost
// connections, services and node programs that start anew, doubled messages, stalls, and drafts that a crash of the
// machine has damaged: the archive is there, once and whole, nothing is asked for twice but what was under way when
// something was lost, and never more than the window. Each history has its seed.
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "gyre/base/checksum.h"
#include "gyre/base/effort_test_support.h"
#include "gyre/base/random.h"
#include "gyre/jobs/drivers/test_support.h"
#include "gyre/jobs/hub/code_shelf.h"
#include "gyre/jobs/node/code_fetch.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::drivers {
namespace {

namespace fs = std::filesystem;
namespace message_type = orders::message_type;
using conformance::content_of;

constexpr std::uint64_t kHistories = 20;
constexpr std::uint64_t kWindow = std::uint64_t{128} << 10;
constexpr std::uint64_t kMostBytes = 2'000'000;

/// What a fetch promises, without messages and files of its own: the node has a beginning of the archive, which only
/// damage makes shorter, and at the end all of it. What it asks for is what is missing, and what a loss has cost.
struct Model {
  std::string archive;
  std::uint64_t asked = 0;
  std::uint64_t may_cost = 0;  ///< What was under way at a loss, and what was damaged.
  bool damaged = false;        ///< Its beginning, until all has come and it was found.

  void check(const std::string& draft) const {
    if (damaged && !draft.empty() && draft[0] != archive[0]) return;
    ASSERT_EQ(draft, archive.substr(0, draft.size())) << draft.size() << " of " << archive.size();
  }
  void check_end(const std::string& file) const {
    ASSERT_EQ(file, archive);
    ASSERT_LE(asked, archive.size() + may_cost);
  }
};

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    model_.archive.resize(one_in(10) ? random_.below(3) : random_.below(kMostBytes), ' ');
    for (char& c : model_.archive) c = static_cast<char>(random_.below(256));
    std::ofstream(place_ / "archive", std::ios::binary) << model_.archive;
    order_.attempt = "job-1";
    order_.code_archive = place_ / "archive";
    order_.code_sha256 = hex(sha256(as_bytes(model_.archive)));
    order_.nodes = {{.id = "n", .address = ""}};
    start_service();
    start_node();
  }

  void run() {
    const Deadline deadline = Deadline::after(conformance::kLongestWait);
    while (!fetch_->is_here()) {
      ASSERT_FALSE(fetch_->failure()) << fetch_->failure()->what();
      ASSERT_FALSE(deadline.passed()) << "it does not come to its end";
      act();
      ASSERT_LE(fetch_->in_flight(), kWindow);
    }
    model_.check_end(content_of(file_));
    ASSERT_FALSE(fs::exists(draft()));
  }

 private:
  bool one_in(std::uint64_t n) { return random_.below(n) == 0; }
  fs::path draft() const { return file_.string() + ".part"; }

  void act() {
    if (one_in(60)) disconnect();
    if (one_in(90)) start_service();
    if (one_in(90)) start_node();
    if (!connected_ && one_in(3)) connect();
    if (one_in(5)) return std::this_thread::yield();  // It stalls.
    while (connected_ && fetch_->send_one([&](std::uint16_t type, std::span<const std::byte> payload) {
      up_.push_back({.type = type, .payload = Bytes(payload.begin(), payload.end())});
      model_.asked += orders::code_request_from(up_.back()).bytes;
    })) {
    }
    if (!up_.empty()) serve();
    if (!down_.empty() && !one_in(3)) hear();
  }

  void serve() {
    const orders::CodeRequest request = orders::code_request_from(up_.front());
    up_.pop_front();
    net::MessageParser parser;
    parser.append(*service_->answer("n", request));
    down_.push_back(parser.next().value());
    if (one_in(10)) down_.push_back(down_.back());
  }
  void hear() {
    net::Message next = std::move(down_.front());
    down_.pop_front();
    ASSERT_EQ(next.type, message_type::kCodeBytes);
    fetch_->take(orders::code_piece_from(std::move(next)));
  }

  void start_service() {
    disconnect();
    service_ = std::make_unique<hub::CodeShelf>();
    service_->expect(order_);
  }
  void start_node() {
    disconnect();
    if (fetch_) model_.may_cost += fetch_->in_flight();
    fetch_.reset();
    if (fs::exists(draft())) {
      model_.check(content_of(draft()));
      if (testing::Test::HasFatalFailure()) return;
      if (one_in(4)) damage();
    }
    fetch_ = std::make_unique<node::CodeFetch>("job-1", order_.code_sha256, file_);
  }
  /// As a machine that crashed may have left it. It is found at the end, and all of it is fetched again.
  void damage() {
    const std::string text = content_of(draft());
    if (text.empty()) return;
    std::ofstream(draft(), std::ios::in | std::ios::binary) << static_cast<char>(text[0] ^ 1);
    model_.damaged = true;
    model_.may_cost += model_.archive.size();
  }
  void disconnect() {
    if (fetch_ && connected_) model_.may_cost += kWindow + orders::kMostCodePieceBytes;
    up_.clear();
    down_.clear();
    connected_ = false;
    if (fetch_) fetch_->connected(0);
  }
  void connect() {
    connected_ = true;
    fetch_->connected(kWindow);
    model_.may_cost += orders::kMostCodePieceBytes;  // The first range is asked for before its length is known.
  }

  conformance::PublicFolder root_;
  const fs::path place_ = root_.path();
  const fs::path file_ = place_ / "code.tar";
  Random random_;
  orders::WorkOrder order_;
  Model model_;
  std::unique_ptr<hub::CodeShelf> service_;
  std::unique_ptr<node::CodeFetch> fetch_;
  std::deque<net::Message> up_;
  std::deque<net::Message> down_;
  bool connected_ = false;
};

TEST(CodeFetches, the_archive_comes_once_and_whole_whatever_happens) {
  const std::uint64_t first = first_case_of_day();
  for (std::uint64_t seed = first; seed < first + kHistories; ++seed) {
    SCOPED_TRACE("GYRE_TEST_SEED: history " + std::to_string(seed));
    History(seed).run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace gyre::jobs::drivers
