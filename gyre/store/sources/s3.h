#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/store/sources/aws_signature.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// A bucket of S3 or of another service that speaks its protocol, or a part of one.
struct S3Place {
  std::string endpoint;  ///< Another service's: "http://127.0.0.1:9000", no '/' behind. Empty: AWS's own.
  std::string region;    ///< "us-east-1".
  std::string bucket;
  std::string path;  ///< Of one object, or of a folder of objects; without '/' at either end; empty for all.
};

/// `keys`: nothing for public buckets.
std::unique_ptr<Source> open_s3(S3Place place, std::optional<AwsKeys> keys);

/// One page of "ListObjectsV2".
struct S3Page {
  std::vector<Object> objects;  ///< With their whole names.
  std::string next;             ///< The continuation token; empty on the last page.
};

/// `text` is the server's XML. Error(kProtocol) names `source`.
/// Source: "ListObjectsV2", Amazon S3 API Reference.
S3Page parse_s3_page(std::string_view text, const std::string& source);

}  // namespace gyre::store
