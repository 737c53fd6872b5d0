// What is uploaded must be what the user would have copied by hand: all that is needed, nothing that is not.
#include "gyre/jobs/client/code_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "gyre/base/error.h"
#include "gyre/jobs/client/connection.h"
#include "gyre/net/http/certificate.h"

namespace gyre::jobs::client {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CodeArchiveTest : public testing::Test {
 protected:
  CodeArchiveTest() {
    std::string name = "/tmp/gyre-code-XXXXXX";
    folder_ = fs::path(::mkdtemp(name.data())) / "code";
    fs::create_directories(folder_);
  }
  ~CodeArchiveTest() override { fs::remove_all(folder_.parent_path()); }

  void write(const std::string& path, const std::string& text = "x") const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  /// As another program lists it.
  std::vector<std::string> listed() const {
    const fs::path file = folder_.parent_path() / "code.tar";
    std::ofstream(file, std::ios::binary) << archive_code(folder_).bytes;
    std::FILE* tar = ::popen(("tar -tf " + file.string()).c_str(), "r");
    std::string text;
    for (int c = std::fgetc(tar); c != EOF; c = std::fgetc(tar)) text += static_cast<char>(c);
    EXPECT_EQ(::pclose(tar), 0);
    std::vector<std::string> names;
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      names.push_back(text.substr(at, text.find('\n', at) - at));
    }
    return names;
  }
  std::string refusal() const {
    try {
      archive_code(folder_);
    } catch (const Error& error) {
      return error.what();
    }
    return "it was accepted";
  }

  fs::path folder_;
};

TEST_F(CodeArchiveTest, tar_reads_it_and_equal_folders_are_equal_archives) {
  const std::string deep = std::string(90, 'a') + "/" + std::string(90, 'b');
  write("train.py");
  write(deep);
  fs::create_symlink("train.py", folder_ / "link");
  EXPECT_THAT(listed(), ElementsAre(std::string(90, 'a') + "/", deep, "link", "train.py"));
  const CodeArchive first = archive_code(folder_);
  EXPECT_EQ(first.sha256, archive_code(folder_).sha256);
  EXPECT_EQ(first.files, 3U);
  write("train.py", "other");
  EXPECT_NE(first.sha256, archive_code(folder_).sha256);
}

TEST_F(CodeArchiveTest, gyreignore_leaves_out_and_git_is_never_taken) {
  for (const char* path :
       {".git/HEAD", "data/big", "a/data/x", "a/keep.log", "a/b.log", "train.py", "out/x", "a/out/y"}) {
    write(path);
  }
  write(".gitignore", "train.py\n");
  EXPECT_THAT(listed(), testing::Not(testing::Contains("train.py")));
  write(".gyreignore", "# comment\ndata/\n*.log\n!keep.log\n/out\n.gitignore\n");
  EXPECT_THAT(listed(), ElementsAre(".gyreignore", "a/", "a/keep.log", "a/out/", "a/out/y", "train.py"));
}

TEST_F(CodeArchiveTest, folders_in_it_have_rules_of_their_own) {
  for (const char* path : {"venv/lib/x.py", "data/a.bin", "data/b.bin", "src/a.bin", "src/x.py"}) write(path);
  write("venv/.gitignore", "*\n");
  write(".gyreignore", "*.bin\n.g*ignore\n");
  write("data/.gyreignore", "!a.bin\n");
  write("src/.gitignore", "x.py\n");
  EXPECT_THAT(listed(), ElementsAre("data/", "data/a.bin", "src/", "venv/"));
}

TEST_F(CodeArchiveTest, a_link_out_of_the_folder_is_named_with_the_remedy) {
  fs::create_symlink("/etc/passwd", folder_ / "secrets");
  EXPECT_THAT(refusal(), HasSubstr("secrets is a link to /etc/passwd, out of the folder"));
  EXPECT_THAT(refusal(), HasSubstr(".gyreignore"));
  write(".gyreignore", "secrets\n");
  EXPECT_THAT(listed(), ElementsAre(".gyreignore"));
}

// `gyre user create --to ada.json`, then `--code .`: the token went to every node.
TEST_F(CodeArchiveTest, a_token_or_a_key_is_refused_by_its_content_whatever_its_name) {
  const std::string digits(64, 'a');
  const auto refused = [&](const std::string& name, const std::string& text, mode_t mode = 0644) {
    write(name, text);
    ::chmod((folder_ / name).c_str(), mode);
    const std::string said = refusal();
    fs::remove(folder_ / name);
    return said;
  };
  write_server_file(folder_ / "ada.json", {"http://127.0.0.1:7710", "ada", digits});
  EXPECT_EQ(refusal(), (folder_ / "ada.json").string() +
                           " holds a token for a job server, and code is copied to every node; keep it in another "
                           "folder, or leave it out in .gyreignore");
  fs::rename(folder_ / "ada.json", folder_ / "notes.txt");
  EXPECT_THAT(refusal(), HasSubstr("notes.txt holds a token for a job server"));
  write(".gitignore", "notes.txt\n");
  EXPECT_THAT(listed(), ElementsAre(".gitignore"));
  EXPECT_THAT(refused("ada.token", digits + "\n"), HasSubstr("ada.token holds a token or a key of Gyre"));
  EXPECT_THAT(refused("agents.bin", digits, 0600), HasSubstr("leave it out in .gitignore"));
  EXPECT_THAT(refused("secret", std::string(31, '\xe9') + '\0', 0600), HasSubstr("a key such as GYRE_KEY_FILE names"));
  net::http::certificate_in(folder_ / "tls.pem");
  fs::rename(folder_ / "tls.pem", folder_ / "old.txt");
  EXPECT_THAT(refusal(), HasSubstr("old.txt holds the private key of a job server"));
  fs::remove(folder_ / "old.txt");
  // What only looks like one.
  const std::string accepted = "it was accepted";
  EXPECT_EQ(refused("test.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), accepted);
  EXPECT_EQ(refused("sha256", digits + "\n"), accepted);
  EXPECT_EQ(refused("config.json", R"({"server": "http://127.0.0.1", "token": ""})"), accepted);
  EXPECT_EQ(refused("weights.bin", std::string(32, '\xe9')), accepted);
  EXPECT_EQ(refused("note", std::string(32, 'x'), 0600), accepted);
}

TEST_F(CodeArchiveTest, a_folder_that_is_too_large_names_its_largest_part) {
  write("train.py");
  fs::create_directories(folder_ / "images");
  fs::resize_file((write("images/all"), folder_ / "images/all"), kMostCodeBytes + 1);
  EXPECT_THAT(refusal(), HasSubstr("The largest part so far is images (256 MB)"));
}

}  // namespace
}  // namespace gyre::jobs::client
