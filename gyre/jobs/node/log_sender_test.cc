// A job may have put anything into its log folder; the node program, which may be root, must send nothing of it but the
// job's own files.
#include "gyre/jobs/node/log_sender.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gyre/base/bytes.h"
#include "gyre/base/trace_file.h"
#include "gyre/jobs/orders/messages.h"

namespace gyre::jobs::node {
namespace {

namespace fs = std::filesystem;
namespace message_type = orders::message_type;
using orders::LogPlace;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class LogSenderTest : public testing::Test {
 protected:
  LogSenderTest() {
    std::string name = "/tmp/gyre-sender-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::create_directory(logs());
  }
  ~LogSenderTest() override { fs::remove_all(folder_); }

  fs::path logs() const { return folder_ / "stdouterr"; }
  UniqueFd open() const { return UniqueFd(::open(logs().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(logs() / name, std::ios::app) << text;
  }
  /// Everything that is sent to a service that has nothing yet; by file.
  std::map<std::string, std::string> sent_by(LogSender& sender) {
    std::map<std::string, std::string> files;
    const auto receive = [&](std::uint16_t type, std::span<const std::byte> payload) {
      const net::Message message{.type = type, .payload = Bytes(payload.begin(), payload.end())};
      if (type == message_type::kLogOpen) wanted_.push_back(orders::log_place_from(message));
      if (type != message_type::kLogBytes) return;
      const orders::LogPiece piece = orders::log_piece_from(message);
      files[piece.place.file] += as_text(piece.bytes);
      taken_.push_back({"a-1", piece.place.file, piece.place.offset + piece.bytes.size()});
    };
    while (sender.send_one(receive)) {
      for (const LogPlace& place : std::exchange(wanted_, {})) sender.from(place);
      for (const LogPlace& place : std::exchange(taken_, {})) sender.taken(place);
    }
    return files;
  }

  fs::path folder_;
  std::vector<LogPlace> wanted_;
  std::vector<LogPlace> taken_;
};

TEST_F(LogSenderTest, only_regular_files_of_the_folders_owner_are_sent) {
  write("stdout.txt", "text");
  std::ofstream(folder_ / "secret") << "secret";
  fs::create_symlink(folder_ / "secret", logs() / "link.txt");
  fs::create_directory(logs() / "folder");
  ASSERT_EQ(::mkfifo((logs() / "pipe").c_str(), 0666), 0);
  write(".hidden", "hidden");
  if (::geteuid() == 0) {
    fs::create_hard_link(folder_ / "secret", logs() / "hard.txt");
    // As the account of a job, which cannot own what is root's.
    ASSERT_EQ(::chown(logs().c_str(), 12'345, 12'345), 0);
    ASSERT_EQ(::chown((logs() / "stdout.txt").c_str(), 12'345, 12'345), 0);
  }
  LogSender sender("a-1", open(), 0);
  sender.connected(1 << 20);
  EXPECT_THAT(sent_by(sender), ElementsAre(Pair("stdout.txt", "text")));
}

TEST_F(LogSenderTest, no_more_is_sent_than_a_job_may_write_and_what_is_said_about_it) {
  write("stdout.txt", std::string(500'000, 'x'));
  LogSender sender("a-1", open(), 1'000);
  sender.connected(1 << 20);
  EXPECT_EQ(sent_by(sender).at("stdout.txt").size(), 1'000 + 65'536U);
}

// The end of a timeline is overwritten by what comes next: a service that had it would keep it in the middle.
TEST_F(LogSenderTest, what_is_sent_of_a_timeline_stays_as_it_is) {
  const std::string name = "gyre-1-timeline-0.json";
  TraceFile trace(logs() / name, R"({"ph":"M"})");
  LogSender sender("a-1", open(), 0);
  sender.connected(1 << 20);
  std::string sent = sent_by(sender)[name];
  EXPECT_EQ(sent, "[\n{\"ph\":\"M\"}");
  trace.append(",\n{\"ph\":\"E\"}");
  sender.look();
  sent += sent_by(sender)[name];
  sender.seal(open());
  sent += sent_by(sender)[name];
  EXPECT_EQ(sent, "[\n{\"ph\":\"M\"},\n{\"ph\":\"E\"}\n]\n");
}

TEST_F(LogSenderTest, nothing_is_sent_to_a_service_that_takes_no_logs) {
  write("stdout.txt", "text");
  LogSender sender("a-1", open(), 0);
  sender.connected(0);
  EXPECT_THAT(sent_by(sender), IsEmpty());
}

}  // namespace
}  // namespace gyre::jobs::node
