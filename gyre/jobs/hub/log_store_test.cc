// What the service keeps of logs must be what nodes have written, once, whoever sends what again, and no more than it
// may keep.
#include "gyre/jobs/hub/log_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gyre/base/bytes.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::hub {
namespace {

namespace fs = std::filesystem;
using orders::kNothingWanted;
using orders::WorkOrder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LogStoreTest : public testing::Test {
 protected:
  LogStoreTest() {
    std::string name = "/tmp/gyre-logs-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    restart();
  }
  ~LogStoreTest() override { fs::remove_all(folder_); }

  void restart(std::uint64_t keep_free_bytes = 0) {
    store_ = std::make_unique<LogStore>(LogStoreOptions{.folder = folder_, .keep_free_bytes = keep_free_bytes});
  }
  WorkOrder order(int attempt, std::uint64_t log_bytes = 0) const {
    WorkOrder order;
    order.attempt = "job-" + std::to_string(attempt);
    order.attempt_number = attempt;
    order.path_segment = "w/job";
    order.nodes.resize(1);
    order.log_bytes = log_bytes;
    order.sends_logs = true;
    return order;
  }
  std::uint64_t open(const std::string& attempt, const std::string& node = "n0") {
    return store_->open(node, {attempt, "stdout.txt", 0}).place.offset;
  }
  LogStore::Answer write(const std::string& attempt, std::uint64_t offset, const std::string& text,
                         const std::string& node = "n0") {
    return store_->write(node, {{attempt, "stdout.txt", offset}, as_bytes(text)});
  }
  std::string content(const std::string& file = "stdout.txt") const {
    std::ifstream stream(received_logs(folder_, order(1)) / file);
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }

  fs::path folder_;
  std::unique_ptr<LogStore> store_;
};

TEST_F(LogStoreTest, what_comes_twice_is_kept_once_and_a_gap_is_asked_for) {
  store_->expect(order(1));
  EXPECT_EQ(open("job-1"), 0U);
  EXPECT_EQ(write("job-1", 0, "hello ").place.offset, 6U);
  EXPECT_EQ(write("job-1", 3, "lo world").place.offset, 11U);
  EXPECT_EQ(write("job-1", 0, "hello ").place.offset, 11U);
  const auto gap = write("job-1", 20, "later");
  EXPECT_EQ(gap.type, orders::message_type::kLogFrom);
  EXPECT_EQ(gap.place.offset, 11U);
  EXPECT_EQ(content(), "hello world");
}

TEST_F(LogStoreTest, after_a_restart_it_knows_how_much_it_has) {
  store_->expect(order(1));
  open("job-1");
  write("job-1", 0, "before ");
  restart();
  // Also of an attempt that nobody expects any more.
  EXPECT_EQ(write("job-1", 7, "after").place.offset, 7U) << "it was not opened";
  EXPECT_EQ(open("job-1"), 7U);
  write("job-1", 7, "after");
  store_->finish("n0", "job-1");
  EXPECT_EQ(content(), "before after");
}

TEST_F(LogStoreTest, an_attempt_that_nobody_knows_is_not_wanted) {
  EXPECT_EQ(open("job-1"), kNothingWanted);
  EXPECT_THAT(fs::exists(received_logs(folder_, order(1))), false);
}

// A lost node comes back when the job's next attempt runs already.
TEST_F(LogStoreTest, attempts_follow_each_other_and_what_comes_late_gets_a_file_of_its_own) {
  store_->expect(order(1));
  open("job-1");
  write("job-1", 0, "first ");
  store_->expect(order(2));
  EXPECT_EQ(open("job-2"), 0U);
  write("job-2", 0, "second");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(open("job-1"), i == 0 ? 6U : 10U);
    EXPECT_EQ(write("job-1", 6, "late").place.offset, 10U);
    restart();
  }
  open("job-2");
  write("job-2", 6, " goes on");
  EXPECT_EQ(content(), "first second goes on");
  EXPECT_EQ(content("stdout.attempt-1.txt"), "late");
}

TEST_F(LogStoreTest, files_of_one_name_on_two_nodes_stay_apart) {
  store_->expect(order(1));
  open("job-1");
  open("job-1", "n1");
  write("job-1", 0, "zero");
  write("job-1", 0, "one", "n1");
  EXPECT_EQ(content(), "zero");
  EXPECT_EQ(content("stdout.n1.txt"), "one");
}

TEST_F(LogStoreTest, a_file_that_was_cut_is_cut_here_and_behind_what_an_earlier_attempt_wrote) {
  store_->expect(order(1));
  open("job-1");
  write("job-1", 0, "first ");
  store_->expect(order(2));
  open("job-2");
  write("job-2", 0, "second");
  EXPECT_EQ(store_->cut("n0", {"job-2", "stdout.txt", 3}).place.offset, 3U);
  EXPECT_EQ(write("job-2", 3, "!").place.offset, 4U);
  EXPECT_EQ(content(), "first sec!");
}

TEST_F(LogStoreTest, logs_beyond_what_a_job_may_have_are_dropped_after_a_line_that_says_so) {
  store_->expect(order(1, 1000));
  open("job-1");
  const std::string much(60'000, 'x');
  EXPECT_EQ(write("job-1", 0, much).place.offset, 60'000U);
  EXPECT_THAT(store_->take_notes(), IsEmpty());
  EXPECT_EQ(write("job-1", 60'000, much).place.offset, 120'000U) << "nobody waits for room";
  const std::string kept = content();
  EXPECT_LT(kept.size(), 1000 + 66'000U);
  EXPECT_THAT(kept.substr(kept.size() - 300), HasSubstr("[gyre: this log is cut off here"));
  EXPECT_EQ(store_->take_notes().size(), 1U);
  restart();
  EXPECT_EQ(open("job-1"), kNothingWanted);
  EXPECT_EQ(content(), kept);
}

TEST_F(LogStoreTest, a_disk_that_is_as_full_as_it_may_be_gets_no_logs) {
  restart(std::uint64_t{1} << 62);
  store_->expect(order(1));
  open("job-1");
  EXPECT_EQ(write("job-1", 0, "text").place.offset, 4U);
  EXPECT_THAT(content(), HasSubstr("--keep-free"));
  EXPECT_THAT(content(), testing::Not(HasSubstr("text")));
}

}  // namespace
}  // namespace gyre::jobs::hub
