#include "gyre/store/sources/azure_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/sources/azure_key.h"
#include "gyre/store/sources/azure_listing.h"
#include "gyre/store/sources/http_session.h"
#include "gyre/store/sources/object_names.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

/// Old enough for Azurite, new enough for every field of a listing that we read.
constexpr const char* kVersion = "2021-12-02";
/// 5,000 blobs of a page, each with a name of 1,024 characters and its properties.
constexpr std::uint64_t kMostPageBytes = 64 << 20;

using Query = std::vector<std::pair<std::string, std::string>>;

std::chrono::sys_seconds now() { return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()); }

/// "Thu, 26 Nov 2026 12:00:00 GMT", in no locale.
std::string http_date() {
  std::array<char, 64> text{};
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::strftime(text.data(), text.size(), "%d", &parts);
  return fmt::format("{}, {} {} {:04} {:02}:{:02}:{:02} GMT", kDays[static_cast<std::size_t>(parts.tm_wday)],
                     text.data(), kMonths[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                     parts.tm_min, parts.tm_sec);
}

/// Makes requests that the server lets in. Thread-safe.
class Signer {
 public:
  Signer(AzurePlace place, AzureIdentity identity) : place_(std::move(place)), identity_(std::move(identity)) {}

  const AzurePlace& place() const { return place_; }
  bool encrypted() const { return place_.endpoint.starts_with("https://"); }

  std::optional<Sas> sas() const GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return identity_.sas;
  }

  /// `blob`: empty for the container. `range`: "bytes=0-99" or empty.
  HttpRequest sign(const std::string& method, const std::string& blob, const Query& query, const std::string& if_match,
                   const std::string& range) const GYRE_EXCLUDES(mutex_) {
    const std::string path = "/" + encode_component(place_.container) + (blob.empty() ? "" : "/" + encode_path(blob));
    HttpRequest request{.method = method, .url = place_.endpoint + path};
    std::string words;
    for (const auto& [name, value] : query)
      words += fmt::format("{}{}={}", words.empty() ? "" : "&", name, encode_component(value));
    if (const auto signature = sas()) words += (words.empty() ? "" : "&") + signature->query();
    if (!words.empty()) request.url += "?" + words;
    const Query own = {{"x-ms-date", http_date()}, {"x-ms-version", kVersion}};
    for (const auto& [name, value] : own) request.headers.push_back(name + ": " + value);
    if (!if_match.empty()) request.headers.push_back("If-Match: " + if_match);
    if (identity_.key && !sas()) {
      const auto url = split_url(request.url);
      const std::string authorization = shared_key_authorization(
          place_.account, *identity_.key,
          {.method = method, .path = url->path, .query = query, .headers = own, .range = range, .if_match = if_match});
      request.headers.push_back("Authorization: " + authorization);
    }
    return request;
  }

  /// After a refusal of a request that was signed with `used`: true where another SAS is there now.
  bool renew(const std::optional<Sas>& used) GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!used || !identity_.sas) return false;
    if (identity_.sas->query() != used->query()) return true;  // Another thread was here before us.
    if (!identity_.renew) return false;
    auto renewed = identity_.renew();
    if (!renewed || renewed->query() == used->query()) return false;
    identity_.sas = std::move(renewed);
    return true;
  }

 private:
  const AzurePlace place_;
  mutable Mutex mutex_;
  AzureIdentity identity_;  ///< Its SAS is guarded by mutex_.
};

std::string error_detail(const WholeReply& whole) {
  const std::string_view code = whole.reply.header("x-ms-error-code");
  return code.empty() ? code_of_error_xml(as_text(whole.body)) : std::string(code.substr(0, 100));
}

class AzureReader : public ObjectReader {
 public:
  AzureReader(std::shared_ptr<Signer> signer, std::string prefix, const std::string& source, const ReadLimits& limits)
      : signer_(std::move(signer)), prefix_(std::move(prefix)), source_(source), session_(source, limits) {}

  ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const auto sas = signer_->sas();
    // A SharedKey covers the header Range, which read_range() adds for a part of the object.
    const std::string range =
        into.size() < object.size_bytes ? fmt::format("bytes={}-{}", offset_bytes, offset_bytes + into.size() - 1) : "";
    HttpRequest request = signer_->sign("GET", prefix_ + object.name, {}, object.version, range);
    try {
      return read_range(session_, std::move(request), fmt::format("cannot read {} of {}", object.name, source_), object,
                        offset_bytes, into, error_detail);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kAuthentication || !signer_->renew(sas)) throw;
      return {.bytes = 0, .setback = Setback{.reason = "the SAS has expired; another one is used now"}};
    }
  }

 private:
  std::shared_ptr<Signer> signer_;
  std::string prefix_;
  std::string source_;
  HttpSession session_;
};

class AzureSource : public Source {
 public:
  AzureSource(AzurePlace place, AzureIdentity identity)
      : name_(fmt::format("{}/{}{}{}", place.endpoint, place.container, place.path.empty() ? "" : "/", place.path)),
        signer_(std::make_shared<Signer>(std::move(place), std::move(identity))) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) override {
    HttpSession session(name_, limits);
    const auto sas = signer_->sas();
    const bool by_name = sas && !sas->may_list() && !signer_->place().path.empty();
    if (sas) sas->check_reading(now(), !by_name, signer_->encrypted());
    std::vector<Object> objects =
        by_name ? named(session, *sas, limits, patience) : list_pages(session, limits, patience);
    prefix_ = name_below(objects, signer_->place().path, name_);
    return objects;
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<AzureReader>(signer_, prefix_, name_, limits);
  }

 private:
  std::vector<Object> list_pages(HttpSession& session, const ReadLimits& limits,
                                 std::chrono::milliseconds patience) const {
    std::vector<Object> objects;
    std::string marker;
    do {
      Query query = {{"restype", "container"}, {"comp", "list"}, {"include", "metadata"}, {"maxresults", "5000"}};
      if (!signer_->place().path.empty()) query.emplace_back("prefix", signer_->place().path);
      if (!marker.empty()) query.emplace_back("marker", marker);
      const WholeReply whole = fetch_whole(
          session, [&] { return signer_->sign("GET", "", query, "", ""); }, "cannot list " + name_, error_detail,
          kMostPageBytes, limits, patience);
      AzurePage page = parse_azure_page(as_text(whole.body), name_);
      if (page.next_marker == marker && !marker.empty()) {
        throw Error(ErrorCode::kProtocol, fmt::format("the listing of {} does not come to an end", name_));
      }
      marker = std::move(page.next_marker);
      std::ranges::move(page.objects, std::back_inserter(objects));
    } while (!marker.empty());
    return objects;
  }

  /// The blob that the path names. Where there is none, a folder was probably meant, which has to be listed.
  std::vector<Object> named(HttpSession& session, const Sas& sas, const ReadLimits& limits,
                            std::chrono::milliseconds patience) const {
    try {
      return {head(session, limits, patience)};
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kNotFound) sas.check_reading(now(), true, signer_->encrypted());
      throw;
    }
  }

  /// The blob that the path names.
  Object head(HttpSession& session, const ReadLimits& limits, std::chrono::milliseconds patience) const {
    const std::string& path = signer_->place().path;
    const WholeReply whole = fetch_whole(
        session, [&] { return signer_->sign("HEAD", path, {}, "", ""); }, "cannot read " + name_, error_detail,
        kMostPageBytes, limits, patience);
    const auto length = whole.reply.length();
    if (!length)
      throw Error(ErrorCode::kProtocol, fmt::format("cannot read {}: the server does not say its size", name_));
    Object object{.name = path,
                  .size_bytes = *length,
                  .version = std::string(whole.reply.header("etag")),
                  .encoding = std::string(whole.reply.header("content-encoding"))};
    if (const auto md5 = decode_base64(whole.reply.header("content-md5")); md5 && md5->size() == 16) {
      object.md5.emplace();
      std::ranges::copy(*md5, object.md5->begin());
    }
    return object;
  }

  std::string name_;
  std::string prefix_;  ///< Of the blobs' names, which the objects' do without.
  std::shared_ptr<Signer> signer_;
};

}  // namespace

std::unique_ptr<Source> open_azure_blob(AzurePlace place, AzureIdentity identity) {
  return std::make_unique<AzureSource>(std::move(place), std::move(identity));
}

}  // namespace gyre::store
