// An archive of code may be anybody's: nothing of it may land outside of the job's folder.
#include "gyre/jobs/node/code.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gyre/base/bytes.h"
#include "gyre/base/checksum.h"
#include "gyre/base/clock.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/random.h"

namespace gyre::jobs::node {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Part {
  std::string name;
  char type = '0';
  std::string content{};
  std::string link{};
  std::string mode = "0000644";
};

void put(std::string& header, std::size_t at, const std::string& text) { header.replace(at, text.size(), text); }

/// Makes the checksum of the header at `at` right.
void sign(std::string& archive, std::size_t at) {
  archive.replace(at + 148, 8, "        ");
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(archive[at + i]);
  archive.replace(at + 148, 7, fmt::format("{:06o} ", sum));
}

std::string tar_of(const std::vector<Part>& parts) {
  std::string archive;
  for (const Part& part : parts) {
    std::string header(512, '\0');
    put(header, 0, part.name);
    put(header, 100, part.mode);
    put(header, 124, fmt::format("{:011o}", part.content.size()));
    put(header, 136, "13000000000");
    header[156] = part.type;
    put(header, 157, part.link);
    put(header, 257, "ustar");
    put(header, 263, "00");
    sign(header, 0);
    archive += header + part.content;
    archive.append((512 - part.content.size() % 512) % 512, '\0');
  }
  return archive + std::string(1024, '\0');
}

class Code : public testing::Test {
 protected:
  Code() {
    std::string name = "/tmp/gyre-code-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~Code() override { fs::remove_all(folder_); }

  void unpack(const std::string& archive, const CodeLimits& limits = {}) {
    std::ofstream(folder_ / "code.tar", std::ios::binary) << archive;
    unpack_code(opened().get(), hex(sha256(as_bytes(archive))), folder_ / "code", limits);
  }
  UniqueFd opened() const { return UniqueFd(::open((folder_ / "code.tar").c_str(), O_RDONLY | O_CLOEXEC)); }
  std::string refusal(const std::string& archive, const CodeLimits& limits = {}) {
    try {
      unpack(archive, limits);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(folder_ / "code")) << "a part was left";
      EXPECT_FALSE(fs::exists(folder_ / "code.part"));
      return error.what();
    }
    return "it was accepted";
  }
  std::string content(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(folder_ / "code" / name).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

TEST_F(Code, files_folders_links_and_long_names_are_unpacked) {
  const std::string deep = std::string(80, 'd') + "/" + std::string(80, 'f');
  const std::string line = fmt::format(" path={}\n", deep);
  unpack(tar_of({{"./", '5'},
                 {"train.py", '0', "print()"},
                 {"sub/run.sh", '0', "#!/bin/sh\n", "", "0000755"},
                 {"empty", '5'},
                 {"latest", '2', "", "sub/run.sh"},
                 {"pax", 'x', std::to_string(line.size() + 3) + line},
                 {"ignored", '0', "deep"}}));
  EXPECT_EQ(content("train.py"), "print()");
  EXPECT_EQ(content("latest"), "#!/bin/sh\n");
  EXPECT_EQ(content(deep), "deep");
  EXPECT_TRUE(fs::is_directory(folder_ / "code/empty"));
  EXPECT_EQ(fs::status(folder_ / "code/sub/run.sh").permissions(), fs::perms(0755));
  EXPECT_EQ(fs::status(folder_ / "code/train.py").permissions(), fs::perms(0644));
}

TEST_F(Code, what_would_leave_the_folder_is_refused_by_name) {
  EXPECT_THAT(refusal(tar_of({{"../evil", '0', "x"}})), HasSubstr("'../evil' lies outside"));
  EXPECT_THAT(refusal(tar_of({{"a/../../evil", '0', "x"}})), HasSubstr("lies outside"));
  EXPECT_THAT(refusal(tar_of({{"/etc/evil", '0', "x"}})), HasSubstr("'/etc/evil' lies outside"));
  EXPECT_THAT(refusal(tar_of({{"out", '2', "", "/etc"}})), HasSubstr("'out' is a link to '/etc'"));
  EXPECT_THAT(refusal(tar_of({{"a/out", '2', "", "../../x"}})), HasSubstr("is a link to '../../x'"));
  EXPECT_THAT(refusal(tar_of({{"hard", '1', "", "/etc/passwd"}})), HasSubstr("'hard' is neither"));
  EXPECT_THAT(refusal(tar_of({{"tty", '3'}})), HasSubstr("'tty' is neither"));
}

// A link that leads to an inner place, and one through which a second one would be reached.
TEST_F(Code, no_link_is_followed_while_unpacking) {
  EXPECT_THAT(refusal(tar_of({{"a", '5'}, {"b", '2', "", "a"}, {"b/file", '0', "x"}})), HasSubstr("something else"));
  EXPECT_NE(refusal(tar_of({{"a", '0', "one"}, {"a", '0', "two"}})), "it was accepted");
}

TEST_F(Code, a_damaged_or_exchanged_archive_is_refused) {
  std::string archive = tar_of({{"train.py", '0', std::string(600, 'x')}});
  EXPECT_THAT(refusal(archive.substr(0, 700)), HasSubstr("ends in the middle"));
  archive[3] = 'X';
  EXPECT_THAT(refusal(archive), HasSubstr("checksum"));
  std::ofstream(folder_ / "code.tar") << "something else";
  EXPECT_THROW(unpack_code(opened().get(), std::string(64, '0'), folder_ / "code"), Error);
}

TEST_F(Code, there_are_limits) {
  const std::string archive = tar_of({{"a", '0', "12345"}, {"b", '0', "12345"}});
  EXPECT_THAT(refusal(archive, {.bytes = 9}), HasSubstr("more than"));
  EXPECT_THAT(refusal(archive, {.entries = 1}), HasSubstr("more than 1 entries"));
}

// What an image is built of: it is built anew when that changes, and only then.
TEST_F(Code, a_digest_of_some_paths_tells_their_contents_and_those_behind_links_alone) {
  const std::vector<Part> parts = {
      {"a/x", '0', "1"}, {"ab", '0', "2"}, {"train.py", '0', "3"}, {"link", '2', "", "ab"}};
  const auto digest = [&](const std::optional<std::vector<std::string>>& paths, std::size_t changed = 9) {
    std::vector<Part> copy = parts;
    if (changed < copy.size()) copy[changed].content = "other";
    std::ofstream(folder_ / "code.tar", std::ios::binary) << tar_of(copy);
    return digest_of_code(opened().get(), paths);
  };
  using Paths = std::vector<std::string>;
  EXPECT_EQ(digest(Paths{"a"}, 1), digest(Paths{"a"}));
  EXPECT_EQ(digest(Paths{"a"}, 2), digest(Paths{"a"}));
  EXPECT_NE(digest(Paths{"a"}, 0), digest(Paths{"a"}));
  EXPECT_NE(digest(Paths{"a/x"}, 0), digest(Paths{"a/x"}));
  EXPECT_NE(digest(Paths{"a"}), digest(Paths{"ab"}));
  EXPECT_NE(digest(std::nullopt, 2), digest(std::nullopt));
  EXPECT_NE(digest(Paths{"link"}, 1), digest(Paths{"link"}));
  EXPECT_NE(digest(Paths{"link/y"}, 1), digest(Paths{"link/y"}));
}

// A node noticed them, and the job failed where the submission should have been refused.
TEST_F(Code, a_file_is_found_through_links_that_stay_inside) {
  std::ofstream(folder_ / "code.tar", std::ios::binary) << tar_of({{"needs", '5'},
                                                                   {"needs/base.txt", '0', "base"},
                                                                   {"needs.txt", '2', "", "now/base.txt"},
                                                                   {"now", '2', "", "needs"},
                                                                   {"needs/up", '2', "", "../now/../needs.txt"},
                                                                   {"round", '2', "", "round"}});
  const CodeContent content(opened().get());
  for (const char* path : {"needs/base.txt", "needs.txt", "now/base.txt", "./needs/up", "now/up"}) {
    const CodeContent::Entry* entry = content.file(path);
    ASSERT_NE(entry, nullptr) << path;
    EXPECT_EQ(as_text(entry->content), "base") << path;
  }
  for (const char* path : {"round", "needs", "now", "needs.txt/x", "none", ""}) {
    EXPECT_EQ(content.file(path), nullptr) << path;
  }
}

TEST_F(Code, a_check_refuses_what_cannot_be_unpacked_and_writes_nothing) {
  const auto problem_of = [&](const std::string& archive, const CodeLimits& limits = {}) -> std::string {
    std::ofstream(folder_ / "code.tar", std::ios::binary) << archive;
    try {
      check_code(opened().get(), limits);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(
      problem_of(tar_of(
          {{"./", '5'}, {"a", '5'}, {"a/b", '0', "x"}, {"c/d", '0'}, {"c", '5'}, {"a/", '5'}, {"l", '2', "", "c"}})),
      "");
  EXPECT_THAT(problem_of("no archive, but a text" + std::string(600, '.')), HasSubstr("not usable"));
  EXPECT_THAT(problem_of(tar_of({{"../evil", '0'}})), HasSubstr("lies outside"));
  EXPECT_THAT(problem_of(tar_of({{"hard", '1', "", "a"}})), HasSubstr("neither a file, a folder nor a symbolic link"));
  EXPECT_THAT(problem_of(tar_of({{"disk", '4'}})), HasSubstr("neither"));
  EXPECT_THAT(problem_of(tar_of({{"a", '0'}, {"a", '0'}})), HasSubstr("'a' comes twice"));
  EXPECT_THAT(problem_of(tar_of({{"a", '0'}, {"a/b", '0'}})),
              HasSubstr("'a' is a folder where there is something else"));
  EXPECT_THAT(problem_of(tar_of({{"a", '5'}, {"b", '2', "", "a"}, {"b/f", '0'}})), HasSubstr("something else"));
  EXPECT_THAT(problem_of(tar_of({{"a/b", '0'}, {"a", '0'}})), HasSubstr("comes twice"));
  EXPECT_THAT(problem_of(tar_of({{"a/b/c/d", '0'}}), {.entries = 3}), HasSubstr("more than 3 entries"));
  std::string deep;
  for (int i = 0; i < 5'000; ++i) deep += "d/";
  const auto named = [&](const std::string& name) {
    const std::string line = fmt::format(" path={}\n", name);
    std::size_t length = line.size() + 1;
    while (std::to_string(length).size() + line.size() != length) ++length;
    return tar_of({{"pax", 'x', std::to_string(length) + line}, {"ignored", '0'}});
  };
  EXPECT_THAT(problem_of(named(deep)), HasSubstr("longer than a file's can be"));
  EXPECT_THAT(problem_of(named(std::string(256, 'n'))), HasSubstr("longer than a file's can be"));
  EXPECT_FALSE(fs::exists(folder_ / "code"));
}

TEST_F(Code, random_damage_is_an_error_or_harmless) {
  const auto seed = static_cast<std::uint64_t>(wall_clock_us());
  SCOPED_TRACE(seed);
  Random random(seed);
  const std::string whole =
      tar_of({{"a", '5'}, {"a/b", '0', "text"}, {"l", '2', "", "a/b"}, {"pax", 'x', "9 path=\n"}});
  for (int round = 0; round < 60; ++round) {
    std::string archive = whole;
    for (int i = 0; i < 4; ++i) archive[random.below(archive.size())] = static_cast<char>(random.below(256));
    // Else nearly every header would be refused for its checksum.
    for (std::size_t at = 0; at < archive.size(); at += 512) {
      if (archive.compare(at + 257, 5, "ustar") == 0) sign(archive, at);
    }
    fs::remove_all(folder_ / "code");
    try {
      unpack(archive);
    } catch (const Error&) {
      EXPECT_FALSE(fs::exists(folder_ / "code"));
    }
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_TRUE(entry.path().filename() == "code" || entry.path().filename() == "code.tar") << entry.path();
  }
}

}  // namespace
}  // namespace gyre::jobs::node
