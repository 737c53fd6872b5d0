#include "gyre/store/sources/s3.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <pugixml.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/store/sources/http_session.h"
#include "gyre/store/sources/object_names.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

/// 1,000 objects of a page, each with a name of 1,024 bytes.
constexpr std::uint64_t kMostPageBytes = 64 << 20;

using Query = std::vector<std::pair<std::string, std::string>>;

/// Makes requests that the server lets in. Not changed once made: thread-safe.
class Signer {
 public:
  Signer(S3Place place, std::optional<AwsKeys> keys) : place_(std::move(place)), keys_(std::move(keys)) {
    // A bucket's name with a dot does not fit the certificate of *.s3.amazonaws.com.
    const bool in_host = place_.endpoint.empty() && place_.bucket.find('.') == std::string::npos;
    const std::string aws = fmt::format("s3.{}.amazonaws.com", place_.region);
    origin_ = place_.endpoint.empty() ? "https://" + (in_host ? place_.bucket + "." : "") + aws : place_.endpoint;
    host_ = split_url(origin_ + "/")->authority;
    folder_ = in_host ? "" : "/" + encode_component(place_.bucket);
  }

  const S3Place& place() const { return place_; }

  /// `object`: empty for the bucket. `range`: "bytes=0-99" or empty; read_range() adds the header itself.
  HttpRequest sign(const std::string& method, const std::string& object, const Query& query,
                   const std::string& if_match, const std::string& range) const {
    AwsRequest request{
        .method = method, .path = folder_ + "/" + encode_path(object), .query = query, .headers = {{"host", host_}}};
    HttpRequest sent{.method = method, .url = origin_ + request.path};
    std::string words;
    for (const auto& [name, value] : query)
      words += fmt::format("{}{}={}", words.empty() ? "?" : "&", encode_component(name), encode_component(value));
    sent.url += words;
    if (!if_match.empty()) {
      request.headers.emplace_back("if-match", if_match);
      sent.headers.push_back("If-Match: " + if_match);
    }
    if (!keys_) return sent;
    if (!range.empty()) request.headers.emplace_back("range", range);
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    for (const auto& [name, value] : sign_aws_request(*keys_, place_.region, "s3", request, now))
      sent.headers.push_back(name + ": " + value);
    return sent;
  }

 private:
  S3Place place_;
  std::optional<AwsKeys> keys_;
  std::string origin_;
  std::string host_;
  std::string folder_;  ///< Of all paths, encoded.
};

/// The error's code; where the bucket is, if it is in another region.
std::string error_detail(const WholeReply& whole) {
  const std::string_view region = whole.reply.header("x-amz-bucket-region");
  const std::string code = code_of_error_xml(as_text(whole.body));
  return region.empty() ? code : fmt::format("{}; the bucket is in the region {}", code, region.substr(0, 40));
}

class S3Reader : public ObjectReader {
 public:
  S3Reader(std::shared_ptr<const Signer> signer, std::string prefix, const std::string& source,
           const ReadLimits& limits)
      : signer_(std::move(signer)), prefix_(std::move(prefix)), source_(source), session_(source, limits) {}

  ReadOutcome read(const Object& object, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    const std::string range =
        into.size() < object.size_bytes ? fmt::format("bytes={}-{}", offset_bytes, offset_bytes + into.size() - 1) : "";
    HttpRequest request = signer_->sign("GET", prefix_ + object.name, {}, object.version, range);
    return read_range(session_, std::move(request), fmt::format("cannot read {} of {}", object.name, source_), object,
                      offset_bytes, into, error_detail);
  }

 private:
  std::shared_ptr<const Signer> signer_;
  std::string prefix_;
  std::string source_;
  HttpSession session_;
};

class S3Source : public Source {
 public:
  S3Source(S3Place place, std::optional<AwsKeys> keys)
      : name_(fmt::format("s3://{}{}{}", place.bucket, place.path.empty() ? "" : "/", place.path)),
        signer_(std::make_shared<const Signer>(std::move(place), std::move(keys))) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) override {
    HttpSession session(name_, limits);
    std::vector<Object> objects;
    std::string next;
    do {
      Query query = {{"list-type", "2"}, {"encoding-type", "url"}};
      if (!signer_->place().path.empty()) query.emplace_back("prefix", signer_->place().path);
      if (!next.empty()) query.emplace_back("continuation-token", next);
      const WholeReply whole = fetch_whole(
          session, [&] { return signer_->sign("GET", "", query, "", ""); }, "cannot list " + name_, error_detail,
          kMostPageBytes, limits, patience);
      S3Page page = parse_s3_page(as_text(whole.body), name_);
      if (!next.empty() && page.next == next) {
        throw Error(ErrorCode::kProtocol, fmt::format("the listing of {} does not come to an end", name_));
      }
      next = std::move(page.next);
      std::ranges::move(page.objects, std::back_inserter(objects));
    } while (!next.empty());
    prefix_ = name_below(objects, signer_->place().path, name_);
    return objects;
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<S3Reader>(signer_, prefix_, name_, limits);
  }

 private:
  std::string name_;
  std::string prefix_;  ///< Of the objects' names in the bucket.
  std::shared_ptr<const Signer> signer_;
};

}  // namespace

S3Page parse_s3_page(std::string_view text, const std::string& source) {
  const auto damaged = [&](std::string_view why) {
    return Error(ErrorCode::kProtocol, fmt::format("cannot read the listing of {}: {}", source, why));
  };
  pugi::xml_document document;
  const auto parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) throw damaged(fmt::format("it is no XML ({} at byte {})", parsed.description(), parsed.offset));
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!root) throw damaged("it is not the answer of S3");
  const bool encoded = std::strcmp(root.child_value("EncodingType"), "url") == 0;
  S3Page page;
  for (const pugi::xml_node& entry : root.children("Contents")) {
    Object object{.name = entry.child_value("Key")};
    if (encoded) {
      std::ranges::replace(object.name, '+', ' ');
      object.name = decode(object.name);
    }
    const std::string_view size = entry.child_value("Size");
    const auto [end, failure] = std::from_chars(size.data(), size.data() + size.size(), object.size_bytes);
    if (failure != std::errc{} || end != size.data() + size.size() || size.empty()) {
      throw damaged(fmt::format("the size of '{}' is '{}'", object.name, size));
    }
    object.version = entry.child_value("ETag");
    page.objects.push_back(std::move(object));
  }
  if (std::strcmp(root.child_value("IsTruncated"), "true") == 0) {
    page.next = root.child_value("NextContinuationToken");
    if (page.next.empty()) throw damaged("it goes on, and does not say where");
  }
  return page;
}

std::unique_ptr<Source> open_s3(S3Place place, std::optional<AwsKeys> keys) {
  return std::make_unique<S3Source>(std::move(place), std::move(keys));
}

}  // namespace gyre::store
