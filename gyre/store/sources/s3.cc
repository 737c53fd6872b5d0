#include "gyre/store/sources/s3.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <pugixml.hpp>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/store/sources/http_session.h"
#include "gyre/store/sources/md5.h"
#include "gyre/store/sources/object_names.h"
#include "gyre/store/sources/object_putter.h"
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
    AwsRequest request = unsigned_request(method, object, query);
    HttpRequest sent = sent_request(request);
    if (!if_match.empty()) {
      request.headers.emplace_back("if-match", if_match);
      sent.headers.push_back("If-Match: " + if_match);
    }
    if (!keys_) return sent;
    if (!range.empty()) request.headers.emplace_back("range", range);
    add_signature(sent, request);
    return sent;
  }

  /// A request with a body: PUT or POST. `headers`: more of them.
  HttpRequest sign_put(const std::string& method, const std::string& object, const Query& query, const Query& headers,
                       std::span<const std::byte> body) const {
    AwsRequest request = unsigned_request(method, object, query);
    request.body = body;
    HttpRequest sent = sent_request(request);
    sent.body = body;
    for (const auto& [name, value] : headers) sent.headers.push_back(name + ": " + value);
    if (keys_) add_signature(sent, request);
    return sent;
  }

 private:
  AwsRequest unsigned_request(const std::string& method, const std::string& object, const Query& query) const {
    return {
        .method = method, .path = folder_ + "/" + encode_path(object), .query = query, .headers = {{"host", host_}}};
  }

  HttpRequest sent_request(const AwsRequest& request) const {
    HttpRequest sent{.method = request.method, .url = origin_ + request.path};
    std::string words;
    for (const auto& [name, value] : request.query)
      words += fmt::format("{}{}={}", words.empty() ? "?" : "&", encode_component(name), encode_component(value));
    sent.url += words;
    return sent;
  }

  void add_signature(HttpRequest& sent, const AwsRequest& request) const {
    const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
    for (const auto& [name, value] : sign_aws_request(*keys_, place_.region, "s3", request, now))
      sent.headers.push_back(name + ": " + value);
  }

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

/// All objects whose names begin with the place's path.
std::vector<Object> list_pages(HttpSession& session, const Signer& signer, const std::string& source,
                               const ReadLimits& limits, std::chrono::milliseconds patience) {
  std::vector<Object> objects;
  std::string next;
  do {
    Query query = {{"list-type", "2"}, {"encoding-type", "url"}};
    if (!signer.place().path.empty()) query.emplace_back("prefix", signer.place().path);
    if (!next.empty()) query.emplace_back("continuation-token", next);
    const WholeReply whole = fetch_whole(
        session, [&] { return signer.sign("GET", "", query, "", ""); }, "cannot list " + source, error_detail,
        kMostPageBytes, limits, patience);
    S3Page page = parse_s3_page(as_text(whole.body), source);
    if (!next.empty() && page.next == next) {
      throw Error(ErrorCode::kProtocol, fmt::format("the listing of {} does not come to an end", source));
    }
    next = std::move(page.next);
    std::ranges::move(page.objects, std::back_inserter(objects));
  } while (!next.empty());
  return objects;
}

/// Blocks are S3's parts, whose ETags are the MD5 of their bytes.
class S3Putter : public ObjectPutter {
 public:
  S3Putter(std::shared_ptr<const Signer> signer, const std::string& target, const ReadLimits& limits,
           std::chrono::milliseconds patience)
      : signer_(std::move(signer)), target_(target), limits_(limits), patience_(patience), session_(target, limits) {
    if (!signer_->place().path.empty()) prefix_ = signer_->place().path + "/";
  }

  std::optional<std::map<std::string, Object>> list() override {
    std::map<std::string, Object> there;
    for (Object& object : list_pages(session_, *signer_, target_, limits_, patience_)) {
      if (!object.name.starts_with(prefix_)) continue;
      object.name.erase(0, prefix_.size());
      there.emplace(object.name, std::move(object));
    }
    return there;
  }

  void put(const NewObject& object, std::span<const std::byte> body, const Md5& md5) override {
    Query headers = encoding_of(object);
    headers.emplace_back("Content-MD5", encode_base64(md5));
    send(object, [&] { return signer_->sign_put("PUT", prefix_ + object.name, {}, headers, body); });
  }

  Begun begin(const NewObject& object, const std::string& first_tag) override {
    for (const std::string& id : uploads_of(object)) {
      Begun begun{.id = id, .blocks = parts_of(object, id)};
      const auto first = begun.blocks.find(0);
      if (first != begun.blocks.end() && first->second == first_tag) return begun;
    }
    const WholeReply whole = send(object, [&] {
      return signer_->sign_put("POST", prefix_ + object.name, {{"uploads", ""}}, encoding_of(object), {});
    });
    Begun begun{.id = child(whole, "InitiateMultipartUploadResult", "UploadId")};
    if (begun.id.empty()) throw Error(ErrorCode::kProtocol, what(object) + ": the server gives no id for the upload");
    return begun;
  }

  std::string tag_of(std::uint32_t, const Md5& md5) const override { return hex_of(md5); }

  void put_block(const NewObject& object, const std::string& id, std::uint32_t number, std::span<const std::byte> bytes,
                 const Md5& md5) override {
    const Query query = {{"partNumber", std::to_string(number + 1)}, {"uploadId", id}};
    const Query headers = {{"Content-MD5", encode_base64(md5)}};
    send(object, [&] { return signer_->sign_put("PUT", prefix_ + object.name, query, headers, bytes); });
  }

  void commit(const NewObject& object, const std::string& id, const std::vector<std::string>& tags,
              const Md5&) override {
    std::string list = "<CompleteMultipartUpload>";
    for (std::size_t i = 0; i < tags.size(); ++i)
      list += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>&quot;{}&quot;</ETag></Part>", i + 1, tags[i]);
    list += "</CompleteMultipartUpload>";
    const WholeReply whole = send(object, [&] {
      return signer_->sign_put("POST", prefix_ + object.name, {{"uploadId", id}}, {}, as_bytes(list));
    });
    // Of this request alone an error can come with the status 200.
    if (const std::string code = code_of_error_xml(as_text(whole.body)); !code.empty())
      throw Error(ErrorCode::kIo, fmt::format("{}: the server answers {}", what(object), code));
  }

  bool holds(const Object& there, const NewObject& object, const Contents& contents) override {
    if (there.size_bytes != contents.size_bytes || !has_etag_of(there, contents)) return false;
    // Listings do not show encodings.
    try {
      const WholeReply whole = send(object, [&] { return signer_->sign("HEAD", prefix_ + object.name, {}, "", ""); });
      return whole.reply.header("content-encoding") == object.encoding;
    } catch (const Error& error) {
      // It is gone, or the keys are for writing alone: then it is put again.
      if (error.code() != ErrorCode::kNotFound && error.code() != ErrorCode::kAuthentication) throw;
      return false;
    }
  }

 private:
  /// Of an object of several parts the ETag is the MD5 of theirs, and says how many there are.
  static bool has_etag_of(const Object& there, const Contents& contents) {
    if (there.version == fmt::format("\"{}\"", hex_of(contents.md5))) return true;
    Md5Sum sum;
    for (const Md5& block : contents.blocks) sum.add(block);
    return there.version == fmt::format("\"{}-{}\"", hex_of(sum.result()), contents.blocks.size());
  }

  static Query encoding_of(const NewObject& object) {
    if (object.encoding.empty()) return {};
    return {{"Content-Encoding", object.encoding}};
  }

  std::string what(const NewObject& object) const { return fmt::format("cannot put {} into {}", object.name, target_); }

  WholeReply send(const NewObject& object, const std::function<HttpRequest()>& request) {
    return fetch_whole(session_, request, what(object), error_detail, kMostPageBytes, limits_, patience_);
  }

  static std::string child(const WholeReply& whole, const char* root, const char* name) {
    pugi::xml_document document;
    document.load_buffer(whole.body.data(), whole.body.size());
    return document.child(root).child_value(name);
  }

  /// Those that are not complete, of the first thousand that begin with the object's name.
  std::vector<std::string> uploads_of(const NewObject& object) {
    const std::string key = prefix_ + object.name;
    const Query query = {{"prefix", key}, {"uploads", ""}};
    const WholeReply whole = send(object, [&] { return signer_->sign("GET", "", query, "", ""); });
    pugi::xml_document document;
    document.load_buffer(whole.body.data(), whole.body.size());
    std::vector<std::string> ids;
    for (const pugi::xml_node& upload : document.child("ListMultipartUploadsResult").children("Upload")) {
      if (key == upload.child_value("Key")) ids.emplace_back(upload.child_value("UploadId"));
    }
    return ids;
  }

  std::map<std::uint32_t, std::string> parts_of(const NewObject& object, const std::string& id) {
    std::map<std::uint32_t, std::string> parts;
    std::string marker;
    do {
      Query query = {{"uploadId", id}};
      if (!marker.empty()) query.emplace_back("part-number-marker", marker);
      const WholeReply whole = send(object, [&] { return signer_->sign("GET", prefix_ + object.name, query, "", ""); });
      pugi::xml_document document;
      document.load_buffer(whole.body.data(), whole.body.size());
      const pugi::xml_node root = document.document_element();  // Servers do not agree on its name.
      for (const pugi::xml_node& part : root.children("Part")) {
        std::string tag = part.child_value("ETag");
        std::erase(tag, '"');
        const int number = std::atoi(part.child_value("PartNumber"));
        if (number > 0) parts.emplace(static_cast<std::uint32_t>(number - 1), tag);
      }
      const std::string next = root.child_value("NextPartNumberMarker");
      const bool more = std::strcmp(root.child_value("IsTruncated"), "true") == 0 && next != marker;
      marker = more ? next : "";
    } while (!marker.empty());
    return parts;
  }

  std::shared_ptr<const Signer> signer_;
  std::string target_;
  ReadLimits limits_;
  std::chrono::milliseconds patience_;
  HttpSession session_;
  std::string prefix_;  ///< Of the objects' names.
};

class S3Source : public Source {
 public:
  S3Source(S3Place place, std::optional<AwsKeys> keys)
      : name_(fmt::format("s3://{}{}{}", place.bucket, place.path.empty() ? "" : "/", place.path)),
        signer_(std::make_shared<const Signer>(std::move(place), std::move(keys))) {}

  const std::string& name() const override { return name_; }

  std::vector<Object> list(const ReadLimits& limits, std::chrono::milliseconds patience) override {
    HttpSession session(name_, limits);
    std::vector<Object> objects = list_pages(session, *signer_, name_, limits, patience);
    prefix_ = name_below(objects, signer_->place().path, name_);
    return objects;
  }

  std::unique_ptr<ObjectReader> reader(const ReadLimits& limits) const override {
    return std::make_unique<S3Reader>(signer_, prefix_, name_, limits);
  }

  std::unique_ptr<ObjectPutter> putter(const ReadLimits& limits, std::chrono::milliseconds patience) const override {
    return std::make_unique<S3Putter>(signer_, name_, limits, patience);
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
