#include "gyre/store/sources/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/base/thread.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/sources/http_session.h"
#include "gyre/store/sources/index_page.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

constexpr std::uint64_t kMostPageBytes = 256 << 20;
constexpr int kMostDepth = 64;
/// A server is asked for the size of each of its files: one request a file.
constexpr std::size_t kListingThreads = 8;

/// Names of objects, and where each is.
using Urls = std::map<std::string, std::string>;

std::string no_detail(const WholeReply&) { return {}; }

class HttpReader : public ObjectReader {
 public:
  HttpReader(std::shared_ptr<const Urls> urls, const std::string& source, const ReadLimits& limits)
      : urls_(std::move(urls)), session_(source, limits) {}

  ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const std::string& url = urls_->at(object.name);
    HttpRequest request{.url = url};
    // A weak ETag ("W/…") serves neither; read_range() compares it.
    if (object.version.starts_with('"')) request.headers.push_back("If-Match: " + object.version);
    if (is_http_date(object.version)) request.headers.push_back("If-Unmodified-Since: " + object.version);
    return read_range(session_, std::move(request), "cannot read " + shown_url(url), object, offset_bytes, into,
                      no_detail);
  }

 private:
  std::shared_ptr<const Urls> urls_;
  HttpSession session_;
};

/// What a reply says of the object that it is about. `total_bytes`: of the object.
Object described(std::string name, const HttpReply& reply, std::uint64_t total_bytes) {
  Object object{.name = std::move(name), .size_bytes = total_bytes};
  object.version = reply.header("etag");
  if (object.version.empty()) object.version = reply.header("last-modified");
  object.encoding = reply.header("content-encoding");
  if (const auto md5 = decode_base64(reply.header("content-md5")); md5 && md5->size() == 16) {
    object.md5.emplace();
    std::ranges::copy(*md5, object.md5->begin());
  }
  return object;
}

/// By HEAD; by a GET of the first byte where the server refuses that (signed URLs are for one method).
Object look_up(HttpSession& session, const std::string& name, const std::string& url, const ReadLimits& limits,
               std::chrono::milliseconds patience) {
  const std::string what = "cannot read " + shown_url(url);
  std::optional<Object> object;
  const auto ask = [&](HttpRequest request, std::uint64_t limit_bytes) {
    return fetch_whole(session, [&] { return request; }, what, no_detail, limit_bytes, limits, patience).reply;
  };
  try {
    const HttpReply reply = ask({.method = "HEAD", .url = url}, 0);
    if (const auto length = reply.length()) return described(name, reply, *length);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kAuthentication && error.code() != ErrorCode::kUnsupported) throw;
  }
  const HttpReply reply = ask({.url = url, .headers = {"Range: bytes=0-0"}}, 1);
  const std::string_view range = reply.header("content-range");
  const std::string total(range.substr(std::min(range.find('/') + 1, range.size())));
  if (range.empty() || total.empty() || total.find_first_not_of("0123456789") != std::string::npos ||
      total.size() > 18) {
    throw Error(ErrorCode::kProtocol, what + ": the server does not say its size");
  }
  return described(name, reply, std::stoull(total));
}

class HttpSource : public Source {
 public:
  HttpSource(std::string name, std::string folder_url, Urls urls)
      : name_(std::move(name)), folder_url_(std::move(folder_url)), urls_(std::make_shared<Urls>(std::move(urls))) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) override {
    if (!folder_url_.empty()) {
      auto urls = std::make_shared<Urls>();
      HttpSession session(name_, limits);
      add_page(session, folder_url_, "", 0, *urls, limits, patience);
      urls_ = std::move(urls);
    }
    if (urls_->empty()) throw Error(ErrorCode::kNotFound, name_ + " links to no files");
    return look_up_all(limits, patience);
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<HttpReader>(urls_, name_, limits);
  }

 private:
  void add_page(HttpSession& session, const std::string& url, const std::string& prefix, int depth, Urls& urls,
                const ReadLimits& limits, std::chrono::milliseconds patience) const {
    if (depth > kMostDepth)
      throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot list {}: its folders do not end", name_));
    const WholeReply whole = fetch_whole(
        session, [&] { return HttpRequest{.url = url}; }, "cannot list " + shown_url(url), no_detail, kMostPageBytes,
        limits, patience);
    if (!whole.reply.header("content-type").starts_with("text/html")) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("cannot list {}: the server has no index page there; name the files one by one, or in "
                              "a file of URLs (@FILE)",
                              shown_url(url)));
    }
    for (const std::string& link : links_of_index_page(as_text(whole.body))) {
      const std::string below = url + encode_path(link);
      if (link.ends_with('/')) {
        add_page(session, below, prefix + link, depth + 1, urls, limits, patience);
      } else {
        urls.emplace(prefix + link, below);
      }
    }
  }

  std::vector<Object> look_up_all(const ReadLimits& limits, std::chrono::milliseconds patience) const {
    const std::vector<std::pair<std::string, std::string>> files(urls_->begin(), urls_->end());
    std::vector<Object> objects(files.size());
    std::atomic<std::size_t> next{0};
    Mutex mutex;
    std::exception_ptr failure;
    const auto work = [&] {
      try {
        HttpSession session(name_, limits);
        for (std::size_t i = next++; i < files.size(); i = next++) {
          objects[i] = look_up(session, files[i].first, files[i].second, limits, patience);
        }
      } catch (...) {
        next = files.size();
        const MutexLock lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min(kListingThreads, files.size()); ++i)
      threads.push_back(start_thread("listing", work));
    work();
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    return objects;
  }

  std::string name_;
  std::string folder_url_;  ///< Of an index page; empty where the files are named.
  std::shared_ptr<Urls> urls_;
};

std::string last_part(const std::string& url) {
  check_no_fragment(url);
  const auto parts = split_url(url);
  if (!parts || (parts->scheme != "http" && parts->scheme != "https") || parts->authority.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no URL of a file; http:// or https:// is needed", shown_url(url)));
  }
  std::string name = decode(parts->path.substr(parts->path.rfind('/') + 1));
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' names no file", shown_url(url)));
  return name;
}

}  // namespace

std::unique_ptr<Source> open_http_source(const std::string& url) {
  const std::string name = shown_url(url);
  if (name.ends_with('/')) return std::make_unique<HttpSource>(name, url, Urls{});
  return std::make_unique<HttpSource>(name, "", Urls{{last_part(url), url}});
}

std::unique_ptr<Source> open_http_files(std::string name, const std::vector<std::string>& urls) {
  Urls named;
  for (const std::string& url : urls) {
    if (!named.emplace(last_part(url), url).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has two URLs of files called '{}'", name, last_part(url)));
    }
  }
  return std::make_unique<HttpSource>(std::move(name), "", std::move(named));
}

}  // namespace gyre::store
