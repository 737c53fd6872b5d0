// Whoever finds the wrong server, or sends a token to one, has lost more than a job.
#include "gyre/jobs/client/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "gyre/base/error.h"

namespace gyre::jobs::client {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kFingerprint(64, 'a');

std::string https(const std::string& place) { return "https://" + place + "#" + kFingerprint; }

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    std::string pattern = (fs::temp_directory_path() / "gyre_connection_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    environment_ = {"HOME=/nowhere", "XDG_CONFIG_HOME=" + folder_.string()};
  }
  ~ConnectionTest() override { fs::remove_all(folder_); }

  fs::path default_file() const { return folder_ / "gyre" / "server.json"; }
  fs::path file(const std::string& name, const std::string& text, int mode = 0600) const {
    std::ofstream(folder_ / name) << text;
    ::chmod((folder_ / name).c_str(), mode);
    return folder_ / name;
  }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  fs::path folder_;
  std::vector<std::string> environment_;
};

TEST_F(ConnectionTest, a_servers_place_is_read_and_written_in_one_form) {
  for (const std::string& text : {https("127.0.0.1:7710"), https("head.example.org:1"), https("[::1]:7710"),
                                  std::string("unix:/run/gyre.sock")}) {
    EXPECT_EQ(server_text(parse_server(text)), text);
  }
  EXPECT_EQ(server_text(parse_server("https://127.0.0.1:7710/#" + kFingerprint)), https("127.0.0.1:7710"));
}

TEST_F(ConnectionTest, a_server_that_cannot_prove_itself_is_refused_with_the_form_that_can) {
  for (const std::string& text : {std::string("http://127.0.0.1:7710"), std::string("https://127.0.0.1:1"),
                                  std::string("127.0.0.1:7710"), "https://h:1#" + kFingerprint.substr(1)}) {
    EXPECT_THAT(refusal([&] { parse_server(text); }),
                AllOf(HasSubstr("names no job server"), HasSubstr("https://HOST:PORT#FINGERPRINT")));
  }
}

TEST_F(ConnectionTest, what_a_server_leaves_is_read_by_its_user_alone) {
  const ServerFile written{https("127.0.0.1:7710"), "ada", "secret"};
  write_server_file(default_file(), written);
  EXPECT_EQ(fs::status(default_file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(read_server_file(default_file()), written);
  ::chmod(default_file().c_str(), 0640);
  EXPECT_THAT(refusal([&] { read_server_file(default_file()); }), HasSubstr("chmod 600"));
  EXPECT_EQ(read_server_file(folder_ / "none"), std::nullopt);
  EXPECT_THAT(refusal([&] { read_server_file(file("bad", "[1")); }), HasSubstr("does not say where"));
}

TEST_F(ConnectionTest, without_options_the_default_file_says_everything) {
  write_server_file(default_file(), {"unix:/run/gyre.sock", "ada", "secret"});
  const Connection connection = find_connection({}, environment_);
  EXPECT_EQ(server_text(connection.place), "unix:/run/gyre.sock");
  EXPECT_EQ(connection.token, "secret");
}

TEST_F(ConnectionTest, without_any_server_the_remedy_is_named) {
  EXPECT_THAT(refusal([&] { find_connection({}, environment_); }), HasSubstr("start one with `gyre server`"));
}

TEST_F(ConnectionTest, options_come_before_variables_and_these_before_the_file) {
  write_server_file(default_file(), {https("127.0.0.1:1"), "ada", "of-file"});
  environment_.emplace_back("GYRE_SERVER=" + https("127.0.0.1:2"));
  environment_.emplace_back("GYRE_TOKEN=of-variable");
  const std::string token = file("token", "of-option\n").string();
  const Connection by_variable = find_connection({}, environment_);
  EXPECT_EQ(by_variable.place.endpoint.port, 2);
  EXPECT_EQ(by_variable.token, "of-variable");
  const Connection by_option = find_connection({.server = https("127.0.0.1:3"), .token_file = token}, environment_);
  EXPECT_EQ(by_option.place.endpoint.port, 3);
  EXPECT_EQ(by_option.token, "of-option");
}

TEST_F(ConnectionTest, a_files_token_goes_to_the_server_that_the_file_names_and_to_no_other) {
  write_server_file(default_file(), {https("127.0.0.1:1"), "ada", "secret"});
  EXPECT_EQ(find_connection({.server = https("127.0.0.1:1")}, environment_).token, "secret");
  EXPECT_THAT(refusal([&] { find_connection({.server = https("127.0.0.1:2")}, environment_); }),
              HasSubstr("there is no token for " + https("127.0.0.1:2")));
}

TEST_F(ConnectionTest, another_servers_file_can_be_named_in_place_of_its_address) {
  const fs::path other = folder_ / "other.json";
  write_server_file(other, {https("127.0.0.1:5"), "bob", "bobs"});
  const Connection connection = find_connection({.server = other.string()}, environment_);
  EXPECT_EQ(connection.place.endpoint.port, 5);
  EXPECT_EQ(connection.token, "bobs");
  EXPECT_THAT(refusal([&] { find_connection({.server = "/no/such.json"}, environment_); }), HasSubstr("/no/such.json"));
}

TEST_F(ConnectionTest, a_token_that_others_can_read_or_that_is_none_is_refused) {
  const std::string open = file("open", "token\n", 0644).string();
  EXPECT_THAT(refusal([&] { find_connection({https("127.0.0.1:1"), open}, environment_); }), HasSubstr("chmod 600"));
  const std::string lines = file("lines", "a\nb\n").string();
  EXPECT_THAT(refusal([&] { find_connection({https("127.0.0.1:1"), lines}, environment_); }), HasSubstr("one line"));
}

}  // namespace
}  // namespace gyre::jobs::client
