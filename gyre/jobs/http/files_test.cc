// A job may put anything into its directories, and another's hands are on the requests: only what belongs to the job is
// ever read.
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "gyre/jobs/http/interface_test_support.h"
#include "gyre/jobs/http/internal/contained_file.h"

namespace gyre::jobs::http {
namespace {

using net::http::HttpError;
using nlohmann::json;

class Files : public InterfaceTest {
 protected:
  void SetUp() override {
    InterfaceTest::SetUp();
    as_ada(Method::kPut, kJob, kJobFile);
    write_log("j", "stdout.txt", "0123456789");
    write_log("j", "sub/deep.txt", "deep");
    std::ofstream(directory_ / "secret") << "not yours";
  }
  std::filesystem::path logs() const { return service_->files_of({"w", "e", "j"}); }
  Answer get(const std::string& path, net::http::Headers headers = {}) {
    return as_ada(Method::kGet, std::string(kJob) + "/files" + path, {}, std::move(headers));
  }
};

TEST_F(Files, are_served_whole_and_in_ranges) {
  EXPECT_EQ(get("/stdouterr/stdout.txt").body, "0123456789");
  EXPECT_EQ(get("/stdouterr/sub/deep.txt").body, "deep");
  const Answer range = get("/stdouterr/stdout.txt", {{"Range", "bytes=-3"}});
  EXPECT_EQ(range.status, 206);
  EXPECT_EQ(range.body, "789");
  EXPECT_EQ(get("/stdouterr/stdout.txt", {{"Range", "bytes=20-"}}).status, 416);
  EXPECT_EQ(*as_ada(Method::kHead, std::string(kJob) + "/files/stdouterr/stdout.txt").headers.find("Content-Length"),
            "10");
  EXPECT_EQ(*get("/stdouterr/stdout.txt").headers.find("Content-Type"), "text/plain; charset=utf-8");
  std::ofstream(logs() / "page.html") << "<script>";
  EXPECT_EQ(*get("/stdouterr/page.html").headers.find("Content-Type"), "application/octet-stream");
}

TEST_F(Files, that_are_missing_are_named_and_the_known_directories_listed) {
  EXPECT_EQ(code_of(get("/stdouterr/none.txt")), "FileNotFound");
  EXPECT_EQ(code_of(get("/MODEL/x")), "DirectoryNotFound");
  const Answer unknown = get("/models/x");
  EXPECT_EQ(code_of(unknown), "OutputDirectoryNotFound");
  EXPECT_NE(unknown.body.find("stdouterr, MODEL"), std::string::npos) << unknown.body;
  EXPECT_EQ(code_of(get("/stdouterr/sub")), "NotAFile");
}

TEST_F(Files, cannot_be_reached_by_any_path_that_leads_out) {
  for (const std::string path :
       {"/stdouterr/../../../secret", "/stdouterr/%2e%2e/%2e%2e/%2e%2e/secret", "/stdouterr/..%2f..%2fsecret",
        "/stdouterr//etc/passwd", "/../secret", "/stdouterr/./stdout.txt"}) {
    EXPECT_THROW(net::http::parse_target(std::string(kJob) + "/files" + path), HttpError) << path;
  }
  for (const std::string directory : {"..", "sub/..", "/etc", "./sub", "sub//x", "sub/", "a\\b"}) {
    EXPECT_EQ(get("?directory=" + net::http::percent_encode(directory)).status, 400) << directory;
  }
}

TEST_F(Files, links_within_the_directory_work_and_links_out_of_it_are_refused) {
  std::filesystem::create_symlink("stdout.txt", logs() / "latest");
  std::filesystem::create_symlink("../../../secret", logs() / "escape");
  std::filesystem::create_symlink(directory_ / "secret", logs() / "absolute");
  std::filesystem::create_directory_symlink("/etc", logs() / "etc");
  std::filesystem::create_symlink("/proc/self/fd/0", logs() / "magic");
  std::filesystem::create_symlink("loop", logs() / "loop");
  EXPECT_EQ(get("/stdouterr/latest").body, "0123456789");
  for (const char* name : {"escape", "absolute", "etc/passwd", "magic", "loop"}) {
    const Answer answer = get(std::string("/stdouterr/") + name);
    EXPECT_EQ(answer.status, 403) << name;
    EXPECT_EQ(code_of(answer), "LinkLeavesDirectory");
    EXPECT_EQ(answer.body.find("not yours"), std::string::npos);
  }
  const std::string listing = get("").body;
  EXPECT_NE(listing.find("latest"), std::string::npos);
  for (const char* name : {"escape", "absolute", "etc", "magic", "loop"}) {
    EXPECT_EQ(listing.find('"' + std::string(name) + '"'), std::string::npos) << name;
  }
}

TEST_F(Files, a_directory_that_the_job_replaced_by_a_link_is_refused) {
  std::filesystem::remove_all(logs());
  std::filesystem::create_directory_symlink("/etc", logs());
  EXPECT_EQ(get("/stdouterr/passwd").status, 403);
  EXPECT_EQ(get("").status, 403);
}

TEST_F(Files, pipes_and_devices_are_never_opened) {
  ASSERT_EQ(::mkfifo((logs() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of(get("/stdouterr/pipe")), "FileNotFound");  // At once: opening it would wait for a writer.
  EXPECT_EQ(get("").body.find("pipe"), std::string::npos);
}

TEST_F(Files, a_race_with_the_job_never_leads_out) {
  // The job swaps a directory for a link to a directory outside of it, again and again.
  const auto inside = logs() / "swap";
  const auto outside = directory_ / "outside";
  std::filesystem::create_directories(logs() / "real");
  std::filesystem::create_directories(outside);
  std::ofstream(logs() / "real" / "f") << "mine";
  std::ofstream(outside / "f") << "not yours";
  std::atomic<bool> stop = false;
  std::thread job([&] {
    while (!stop) {
      std::filesystem::create_directory_symlink(outside, logs() / "next");
      std::filesystem::rename(logs() / "next", inside);
      std::filesystem::create_directory_symlink("real", logs() / "next");
      std::filesystem::rename(logs() / "next", inside);
    }
  });
  net::http::Client ada = client("ada-token");
  for (int i = 0; i < 500; ++i) {
    const Answer answer = ask(ada, Method::kGet, std::string(kJob) + "/files/stdouterr/swap/f");
    EXPECT_TRUE((answer.status == 200 && answer.body == "mine") || answer.status == 403 || answer.status == 404)
        << answer.status << answer.body;
  }
  stop = true;
  job.join();
}

TEST_F(Files, without_openat2_every_link_is_refused_and_the_rest_works) {
  std::filesystem::create_symlink("stdout.txt", logs() / "latest");
  std::filesystem::create_directory_symlink("sub", logs() / "link");
  const UniqueFd directory = internal::open_directory(directory_ / "files", "j/stdouterr");
  using internal::Walk;
  for (const char* path : {"stdout.txt", "sub/deep.txt", "sub", ""}) {
    EXPECT_TRUE(internal::open_beneath(directory, path, Walk::kStepwise)) << path;
    EXPECT_TRUE(internal::open_beneath(directory, path, Walk::kKernel)) << path;
  }
  for (const char* path : {"latest", "link/deep.txt"}) {
    EXPECT_THROW(internal::open_beneath(directory, path, Walk::kStepwise), HttpError) << path;
    EXPECT_TRUE(internal::open_beneath(directory, path, Walk::kKernel)) << path;
  }
}

TEST_F(Files, are_listed_by_directory_and_in_pages) {
  write_log("j", "stderr.txt", "e");
  const json all = json::parse(get("").body);
  ASSERT_EQ(all["value"].size(), 3U);
  EXPECT_EQ(all["value"][0]["name"], "stderr.txt");
  EXPECT_EQ(all["value"][1]["properties"]["contentLength"], 10);
  EXPECT_EQ(all["value"][2]["fileType"], "directory");
  const std::string url = all["value"][1]["downloadUrl"];
  EXPECT_EQ(as_ada(Method::kGet, url).body, "0123456789");
  EXPECT_EQ(json::parse(get("?directory=sub").body)["value"][0]["downloadUrl"],
            std::string(kJob) + "/files/stdouterr/sub/deep.txt");
  const json first = json::parse(get("?maxresults=2").body);
  EXPECT_EQ(first["value"].size(), 2U);
  const json rest = json::parse(as_ada(Method::kGet, first["nextLink"].get<std::string>()).body);
  EXPECT_EQ(rest["value"].size(), 1U);
  EXPECT_TRUE(rest["nextLink"].is_null());
  EXPECT_EQ(get("?outputdirectoryid=nonsense").status, 404);
  EXPECT_EQ(get("?directory=stdout.txt").status, 404);
}

TEST_F(Files, a_followed_log_ends_after_its_last_byte_once_the_job_has_ended) {
  net::http::Client ada = client("ada-token");
  std::string received;
  std::atomic<bool> started = false;
  std::thread job([&] {
    while (!started) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) write_log("j", "stdout.txt", "line " + std::to_string(i) + " \xe2\x82\xac\n");
    write_log("j", "stdout.txt", "the last words");
    service_->set_state({"w", "e", "j"}, resources::ExecutionState::kSucceeded);
  });
  const net::http::Target file = net::http::parse_target(std::string(kJob) + "/files/stdouterr/stdout.txt");
  const std::uint64_t end = ada.follow(file, 5, [&](std::string_view bytes) {
    received += bytes;
    started = true;
  });
  job.join();
  EXPECT_TRUE(received.starts_with("56789line 0 "));
  EXPECT_TRUE(received.ends_with("the last words"));
  EXPECT_EQ(end, std::filesystem::file_size(logs() / "stdout.txt"));
  EXPECT_EQ(get("/stdouterr/stdout.txt?follow=true&offset=100000").status, 416);
  EXPECT_EQ(get("/stdouterr/stdout.txt?offset=1").status, 400);
  EXPECT_EQ(get("/stdouterr/sub?follow=true").status, 404);
  EXPECT_EQ(get("/stdouterr/stdout.txt?follow=yes").status, 400);
}

TEST_F(Files, a_followed_log_ends_when_its_job_is_deleted) {
  net::http::Client ada = client("ada-token");
  std::string received;
  ada.follow(net::http::parse_target(std::string(kJob) + "/files/stdouterr/stdout.txt"), 0,
             [&](std::string_view bytes) {
               received += bytes;
               service_->delete_job({"w", "e", "j"});
             });
  EXPECT_EQ(received, "0123456789");
}

}  // namespace
}  // namespace gyre::jobs::http
