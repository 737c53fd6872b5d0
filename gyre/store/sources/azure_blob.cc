#include "gyre/store/sources/azure_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/store/sources/azure_key.h"
#include "gyre/store/sources/azure_listing.h"
#include "gyre/store/sources/http_session.h"
#include "gyre/store/sources/md5.h"
#include "gyre/store/sources/object_names.h"
#include "gyre/store/sources/object_putter.h"
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
    HttpRequest request = unsigned_request(method, blob, query);
    const Query own = {{"x-ms-date", http_date()}, {"x-ms-version", kVersion}};
    for (const auto& [name, value] : own) request.headers.push_back(name + ": " + value);
    if (!if_match.empty()) request.headers.push_back("If-Match: " + if_match);
    add_authorization(
        request, {.method = method, .path = {}, .query = query, .headers = own, .range = range, .if_match = if_match});
    return request;
  }

  /// A request that puts `body`. `headers`: more of those that begin with x-ms-.
  HttpRequest sign_put(const std::string& blob, const Query& query, const Query& headers,
                       std::span<const std::byte> body, const Md5& md5) const GYRE_EXCLUDES(mutex_) {
    HttpRequest request = unsigned_request("PUT", blob, query);
    request.body = body;
    Query own = {{"x-ms-date", http_date()}, {"x-ms-version", kVersion}};
    own.insert(own.end(), headers.begin(), headers.end());
    for (const auto& [name, value] : own) request.headers.push_back(name + ": " + value);
    const std::string sum = encode_base64(md5);
    request.headers.push_back("Content-MD5: " + sum);
    add_authorization(request, {.method = "PUT",
                                .path = {},
                                .query = query,
                                .headers = own,
                                .length = body.empty() ? "" : std::to_string(body.size()),
                                .md5 = sum});
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
  HttpRequest unsigned_request(const std::string& method, const std::string& blob, const Query& query) const {
    const std::string path = "/" + encode_component(place_.container) + (blob.empty() ? "" : "/" + encode_path(blob));
    HttpRequest request{.method = method, .url = place_.endpoint + path};
    std::string words;
    for (const auto& [name, value] : query)
      words += fmt::format("{}{}={}", words.empty() ? "" : "&", name, encode_component(value));
    if (const auto signature = sas()) words += (words.empty() ? "" : "&") + signature->query();
    if (!words.empty()) request.url += "?" + words;
    return request;
  }

  void add_authorization(HttpRequest& request, SharedKeyRequest facts) const {
    if (!identity_.key || sas()) return;
    facts.path = split_url(request.url)->path;
    request.headers.push_back("Authorization: " + shared_key_authorization(place_.account, *identity_.key, facts));
  }

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

/// All blobs whose names begin with the place's path.
std::vector<Object> list_pages(HttpSession& session, const Signer& signer, const std::string& source,
                               const ReadLimits& limits, std::chrono::milliseconds patience) {
  std::vector<Object> objects;
  std::string marker;
  do {
    Query query = {{"restype", "container"}, {"comp", "list"}, {"include", "metadata"}, {"maxresults", "5000"}};
    if (!signer.place().path.empty()) query.emplace_back("prefix", signer.place().path);
    if (!marker.empty()) query.emplace_back("marker", marker);
    const WholeReply whole = fetch_whole(
        session, [&] { return signer.sign("GET", "", query, "", ""); }, "cannot list " + source, error_detail,
        kMostPageBytes, limits, patience);
    AzurePage page = parse_azure_page(as_text(whole.body), source);
    if (page.next_marker == marker && !marker.empty()) {
      throw Error(ErrorCode::kProtocol, fmt::format("the listing of {} does not come to an end", source));
    }
    marker = std::move(page.next_marker);
    std::ranges::move(page.objects, std::back_inserter(objects));
  } while (!marker.empty());
  return objects;
}

/// Blocks are named after their numbers and their MD5: the blocks of an earlier upload show what they hold.
class AzurePutter : public ObjectPutter {
 public:
  AzurePutter(std::shared_ptr<Signer> signer, const std::string& target, const ReadLimits& limits,
              std::chrono::milliseconds patience)
      : signer_(std::move(signer)), target_(target), limits_(limits), patience_(patience), session_(target, limits) {
    if (!signer_->place().path.empty()) prefix_ = signer_->place().path + "/";
  }

  /// Source: "Naming and referencing containers, blobs, and metadata", Azure Storage documentation; that '\\' becomes
  /// '/' is the behaviour of the service and of Azurite.
  std::string_view trouble_with(const NewObject& object) const override {
    const std::string& name = object.name;
    if (name.find('\\') != std::string::npos) return "Azure Blob Storage makes a '/' of each '\\'";
    if (name.ends_with('.') || name.find("./") != std::string::npos)
      return "Azure Blob Storage drops a '.' at the end of a name or a folder's name";
    return {};
  }

  std::optional<std::map<std::string, Object>> list() override {
    const auto sas = signer_->sas();
    if (sas && !sas->may_list()) return std::nullopt;
    std::map<std::string, Object> there;
    for (Object& object : list_pages(session_, *signer_, target_, limits_, patience_)) {
      if (!object.name.starts_with(prefix_)) continue;
      object.name.erase(0, prefix_.size());
      there.emplace(object.name, std::move(object));
    }
    return there;
  }

  void put(const NewObject& object, std::span<const std::byte> body, const Md5& md5) override {
    Query headers = {{"x-ms-blob-type", "BlockBlob"}};
    if (!object.encoding.empty()) headers.emplace_back("x-ms-blob-content-encoding", object.encoding);
    send(object, [&] { return signer_->sign_put(prefix_ + object.name, {}, headers, body, md5); });
  }

  Begun begin(const NewObject& object, const std::string&) override {
    const Query query = {{"comp", "blocklist"}, {"blocklisttype", "uncommitted"}};
    Begun begun;
    try {
      const WholeReply whole = send(object, [&] { return signer_->sign("GET", prefix_ + object.name, query, "", ""); });
      for (const std::string& tag : uncommitted_blocks(as_text(whole.body), target_)) {
        const auto name = decode_base64(tag);
        if (name && name->size() > kNumberDigits)
          begun.blocks.emplace(
              static_cast<std::uint32_t>(std::atoi(std::string(as_text(*name), 0, kNumberDigits).c_str())), tag);
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound) throw;  // Nothing was begun.
    }
    return begun;
  }

  std::string tag_of(std::uint32_t number, const Md5& md5) const override {
    return encode_base64(as_bytes(fmt::format("{:0{}}-{}", number, kNumberDigits, hex_of(md5))));
  }

  void put_block(const NewObject& object, const std::string&, std::uint32_t number, std::span<const std::byte> bytes,
                 const Md5& md5) override {
    const Query query = {{"comp", "block"}, {"blockid", tag_of(number, md5)}};
    send(object, [&] { return signer_->sign_put(prefix_ + object.name, query, {}, bytes, md5); });
  }

  void commit(const NewObject& object, const std::string&, const std::vector<std::string>& tags,
              const Md5& md5) override {
    std::string list = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>";
    for (const std::string& tag : tags) list += fmt::format("<Latest>{}</Latest>", tag);
    list += "</BlockList>";
    Query headers = {{"x-ms-blob-content-md5", encode_base64(md5)}};
    if (!object.encoding.empty()) headers.emplace_back("x-ms-blob-content-encoding", object.encoding);
    const auto body = as_bytes(list);
    Md5Sum sum;
    sum.add(body);
    const Md5 list_md5 = sum.result();
    send(object,
         [&] { return signer_->sign_put(prefix_ + object.name, {{"comp", "blocklist"}}, headers, body, list_md5); });
  }

  bool holds(const Object& there, const NewObject& object, const Contents& contents) override {
    return there.size_bytes == contents.size_bytes && there.md5 == contents.md5 && there.encoding == object.encoding;
  }

 private:
  static constexpr std::size_t kNumberDigits = 8;

  /// Signed with another SAS, if there is one, where the first has expired.
  WholeReply send(const NewObject& object, const std::function<HttpRequest()>& request) {
    const std::string what = fmt::format("cannot put {} into {}", object.name, target_);
    for (;;) {
      const auto sas = signer_->sas();
      try {
        return fetch_whole(session_, request, what, error_detail, kMostPageBytes, limits_, patience_);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kAuthentication || !signer_->renew(sas)) throw;
      }
    }
  }

  std::shared_ptr<Signer> signer_;
  std::string target_;
  ReadLimits limits_;
  std::chrono::milliseconds patience_;
  HttpSession session_;
  std::string prefix_;  ///< Of the blobs' names.
};

class AzureSource : public Source {
 public:
  AzureSource(AzurePlace place, AzureIdentity identity)
      : name_(fmt::format("{}/{}{}{}", place.endpoint, place.container, place.path.empty() ? "" : "/",
                          encode_marks(place.path))),
        signer_(std::make_shared<Signer>(std::move(place), std::move(identity))) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) override {
    HttpSession session(name_, limits);
    const auto sas = signer_->sas();
    const bool by_name = sas && !sas->may_list() && !signer_->place().path.empty();
    if (sas) sas->check_reading(now(), !by_name, signer_->encrypted());
    std::vector<Object> objects =
        by_name ? named(session, *sas, limits, patience) : list_pages(session, *signer_, name_, limits, patience);
    prefix_ = name_below(objects, signer_->place().path, name_);
    return objects;
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<AzureReader>(signer_, prefix_, name_, limits);
  }

  std::unique_ptr<ObjectPutter> putter(const ReadLimits& limits, std::chrono::milliseconds patience) const override {
    if (const auto sas = signer_->sas()) sas->check_writing(now(), signer_->encrypted());
    return std::make_unique<AzurePutter>(signer_, name_, limits, patience);
  }

 private:
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
