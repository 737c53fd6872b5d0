// Outputs and logs are read while they are written: what is sent must be what the file had, to its last byte.
#include "gyre/net/http/file_response.h"

#include <filesystem>

#include "gyre/net/http/error.h"
#include "gyre/net/http/file_test_support.h"
#include "gyre/net/http/test_support.h"

namespace gyre::net::http {
namespace {

class FileResponse : public FileTest {
 protected:
  void SetUp() override {
    Router router;
    router.add({.method = Method::kGet, .pattern = "/file", .handler = [this](Request& request) {
                  return file_response(request, open(), "text/plain; charset=utf-8");
                }});
    server_ = std::make_unique<Server>(loopback_options(), std::move(router));
    client_ = std::make_unique<RawClient>(server_->endpoints()[0]);
  }
  void TearDown() override { server_.reset(); }

  std::string ask(const std::string& headers) const { return client_->ask(get("/file", headers)); }

  static std::string header(const std::string& response, const std::string& name) {
    const std::size_t at = response.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 4;
    return response.substr(begin, response.find("\r\n", begin) - begin);
  }

  std::unique_ptr<Server> server_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(FileResponse, the_whole_file_comes_with_its_length) {
  const std::string response = ask("");
  EXPECT_EQ(status_of(response), "200");
  EXPECT_EQ(body_of(response), "0123456789");
  EXPECT_EQ(header(response, "Accept-Ranges"), "bytes");
  EXPECT_EQ(header(response, "Content-Type"), "text/plain; charset=utf-8");
  write("");
  const std::string empty = ask("");
  EXPECT_EQ(status_of(empty), "200");
  EXPECT_EQ(header(empty, "Content-Length"), "0");
}

TEST_F(FileResponse, one_range_is_206_and_says_where_it_is) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases{
      {"bytes=2-4", "234", "bytes 2-4/10"},
      {"bytes=8-", "89", "bytes 8-9/10"},
      {"bytes=-3", "789", "bytes 7-9/10"},
      {"bytes=0-99", "0123456789", "bytes 0-9/10"}};
  for (const auto& [range, body, place] : cases) {
    const std::string response = ask("Range: " + range + "\r\n");
    EXPECT_EQ(status_of(response), "206") << range;
    EXPECT_EQ(body_of(response), body);
    EXPECT_EQ(header(response, "Content-Range"), place);
  }
}

TEST_F(FileResponse, several_ranges_come_in_parts) {
  const std::string response = ask("Range: bytes=0-1,4-5,-1\r\n");
  EXPECT_EQ(status_of(response), "206");
  const std::string type = header(response, "Content-Type");
  const std::string prefix = "multipart/byteranges; boundary=";
  ASSERT_TRUE(type.starts_with(prefix)) << type;
  const std::string boundary = "--" + type.substr(prefix.size());
  const std::string head = "\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes ";
  EXPECT_EQ(body_of(response), boundary + head + "0-1/10\r\n\r\n01\r\n" + boundary + head + "4-5/10\r\n\r\n45\r\n" +
                                   boundary + head + "9-9/10\r\n\r\n9\r\n" + boundary + "--\r\n");
}

TEST_F(FileResponse, large_ranges_come_whole) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i) + "\n";
  write(text);
  EXPECT_EQ(body_of(ask("")), text);
  EXPECT_EQ(body_of(ask("Range: bytes=100000-900000\r\n")), text.substr(100'000, 800'001));
  const std::string parts = body_of(ask("Range: bytes=0-399999,500000-899999\r\n"));
  EXPECT_NE(parts.find(text.substr(0, 400'000) + "\r\n--"), std::string::npos);
  EXPECT_NE(parts.find("\r\n\r\n" + text.substr(500'000, 400'000) + "\r\n--"), std::string::npos);
}

TEST_F(FileResponse, a_range_that_is_not_there_is_416) {
  const std::string response = ask("Range: bytes=10-\r\n");
  EXPECT_EQ(status_of(response), "416");
  EXPECT_EQ(header(response, "Content-Range"), "bytes */10");
}

TEST_F(FileResponse, head_tells_the_length_of_file_and_range) {
  client_->write("HEAD /file HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(header(client_->read_until("\r\n\r\n"), "Content-Length"), "10");
  client_->write("HEAD /file HTTP/1.1\r\nHost: h\r\nRange: bytes=-3\r\n\r\n");
  const std::string response = client_->read_until("\r\n\r\n");
  EXPECT_EQ(status_of(response), "206");
  EXPECT_EQ(header(response, "Content-Length"), "3");
}

TEST_F(FileResponse, a_tag_saves_and_protects_a_download) {
  const std::string tag = header(ask(""), "ETag");
  EXPECT_EQ(status_of(client_->ask(get("/file", "If-None-Match: " + tag + "\r\n"))), "304");
  EXPECT_EQ(status_of(ask("If-Range: " + tag + "\r\nRange: bytes=0-1\r\n")), "206");
  append("more");
  const std::string changed = ask("If-Range: " + tag + "\r\nRange: bytes=0-1\r\n");
  EXPECT_EQ(status_of(changed), "200");
  EXPECT_EQ(body_of(changed), "0123456789more");
}

TEST_F(FileResponse, only_regular_files_are_served) {
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_EQ(status_of(ask("")), "404");
}

}  // namespace
}  // namespace gyre::net::http
