#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gyre/store/sources/aws_signature.h"
#include "gyre/store/sources/source.h"

namespace gyre::store {

/// Of the stores of this node, which gyre/store/node opens: "store:///DIR/JOB".
constexpr const char* kStoreScheme = "store";

/// What lets us into sources, as other tools' users already keep it.
struct Credentials {
  /// AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN.
  std::string azure_connection_string{};
  std::string azure_account{};
  std::string azure_key{};
  std::string azure_sas{};
  /// Whether the SAS was given for the sources themselves (--sas), of whatever account they are; else it is sent to no
  /// other account than `azure_account`, where that is known.
  bool sas_is_for_all = false;
  /// Where a renewed SAS can be had when the server refuses an expired one; may be empty.
  std::function<std::string()> renewed_sas{};

  /// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else those of AWS_PROFILE (default: "default") in
  /// AWS_SHARED_CREDENTIALS_FILE (default: ~/.aws/credentials). Nothing: for public buckets.
  std::optional<AwsKeys> aws_keys{};
  /// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; empty: AWS's own.
  std::string s3_endpoint{};
  /// AWS_REGION or AWS_DEFAULT_REGION; empty: us-east-1.
  std::string aws_region{};
};

/// Of an environment as NAME=VALUE. Error(kInvalidArgument) for a profile that is not there, or not whole.
Credentials credentials_from(const std::vector<std::string>& environment);

/// A source by its name:
///
/// * `https://ACCOUNT.blob.core.windows.net/CONTAINER[/PATH][?SAS]`, as AzCopy takes it; that of an emulator,
///   `http://127.0.0.1:10000/ACCOUNT/CONTAINER…`, where the connection string names it or a SAS follows;
/// * `az://CONTAINER[/PATH]`, as fsspec takes it, with the account of the credentials;
///   `az://CONTAINER@ACCOUNT.blob.core.windows.net/PATH`;
/// * `s3://BUCKET[/PATH]`;
/// * `http://…`, `https://…`: a file, or an index page where it ends with '/';
/// * `@FILE`: a file of such URLs, one per line;
/// * a path, or `file://PATH`.
///
/// In http, https and file URLs %XX stands for a character; in az and s3 each character of a name stands for itself
/// (split_url()).
///
/// A SAS or a key of the credentials goes to Azure's own endpoints alone, and to the one that the connection string
/// names; a SAS that was given for the sources themselves, or for the account that the URL names, also to an emulator
/// on this machine; a SAS in a URL to that URL's server. Redirects are not followed: they are errors.
///
/// Error(kInvalidArgument) says what is wrong with a name; kNotFound for an `@FILE` that is not there. Nothing is read
/// from the source yet.
std::unique_ptr<Source> open_source(const std::string& name, const Credentials& credentials);

/// Whether such a name is one of Azure Storage's. Error(kInvalidArgument) as open_source().
bool is_of_azure(const std::string& name, const Credentials& credentials);

}  // namespace gyre::store
