#include "gyre/store/sources/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/store/sources/aws_keys.h"
#include "gyre/store/sources/azure_blob.h"
#include "gyre/store/sources/http.h"
#include "gyre/store/sources/local.h"
#include "gyre/store/sources/s3.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

constexpr std::uint64_t kMostListBytes = 256 << 20;
constexpr std::uint64_t kMostKeyFileBytes = 1 << 20;
constexpr std::string_view kBlobHost = ".blob.core.";
constexpr std::string_view kLakeHost = ".dfs.core.";
/// Behind "ACCOUNT.blob.", of Azure's clouds; those of accounts with a DNS zone of their own end in the last one.
/// Source: "Storage account endpoints", Azure Storage documentation.
constexpr std::array<std::string_view, 5> kEndpointSuffixes = {
    "core.windows.net", "core.chinacloudapi.cn", "core.usgovcloudapi.net", "core.cloudapi.de", "storage.azure.net"};
/// Which everybody's Azurite has; not secret. Source: Azurite's documentation.
constexpr const char* kEmulatorAccount = "devstoreaccount1";
constexpr const char* kEmulatorKey =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

constexpr const char* kStarInside =
    "a '*' may only be the last part of a path; --include-pattern selects files by their names";

Error wrong(const std::string& source, const std::string& why) {
  return {ErrorCode::kInvalidArgument, fmt::format("'{}': {}", shown_url(source), why)};
}

/// What the credentials say of the account, in one form.
struct AzureAccount {
  std::string name;
  std::string endpoint;  ///< Empty: the public one of `name`.
  std::string suffix{};  ///< Of the endpoints of the connection string's cloud; may be empty.
  std::string key;
  std::string sas;

  bool has_secret() const { return !key.empty() || !sas.empty(); }
};

AzureAccount account_of(const Credentials& credentials) {
  AzureAccount account{
      .name = credentials.azure_account, .endpoint = {}, .key = credentials.azure_key, .sas = credentials.azure_sas};
  if (credentials.azure_connection_string.empty()) return account;
  std::map<std::string, std::string> fields;
  for (const std::string& field : split(credentials.azure_connection_string, ';')) {
    const std::size_t equals = field.find('=');
    if (equals != std::string::npos) fields[field.substr(0, equals)] = field.substr(equals + 1);
  }
  if (fields["UseDevelopmentStorage"] == "true") {
    return {.name = kEmulatorAccount,
            .endpoint = fmt::format("http://127.0.0.1:10000/{}", kEmulatorAccount),
            .key = kEmulatorKey,
            .sas = {}};
  }
  if (fields["AccountName"].empty() && fields["BlobEndpoint"].empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "AZURE_STORAGE_CONNECTION_STRING has neither an AccountName nor a BlobEndpoint");
  }
  const std::string protocol =
      fields["DefaultEndpointsProtocol"].empty() ? "https" : fields["DefaultEndpointsProtocol"];
  const std::string suffix = fields["EndpointSuffix"].empty() ? "core.windows.net" : fields["EndpointSuffix"];
  account.name = fields["AccountName"];
  account.suffix = suffix;
  account.endpoint = fields["BlobEndpoint"].empty() ? fmt::format("{}://{}.blob.{}", protocol, account.name, suffix)
                                                    : fields["BlobEndpoint"];
  while (account.endpoint.ends_with('/')) account.endpoint.pop_back();
  if (account.key.empty()) account.key = fields["AccountKey"];
  if (account.sas.empty()) account.sas = fields["SharedAccessSignature"];
  return account;
}

/// "host" of "user@HOST:port", in small letters.
std::string host_of(std::string_view authority) {
  authority.remove_prefix(std::min(authority.rfind('@') + 1, authority.size()));
  std::string host(authority.substr(0, authority.find(':')));
  std::ranges::transform(host, host.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return host;
}

/// Whether a host is Azure's, or of the cloud that the connection string names: anybody may call a host of his own
/// "x.blob.core.example.com".
bool is_azure_host(std::string_view authority, const AzureAccount& account) {
  const std::string host = host_of(authority);
  const bool is_name = std::ranges::all_of(
      host, [](unsigned char letter) { return std::isalnum(letter) != 0 || letter == '.' || letter == '-'; });
  const std::size_t blob = host.find(".blob.");
  if (!is_name || blob == std::string::npos || blob == 0) return false;
  const std::string_view suffix = std::string_view(host).substr(blob + std::string_view(".blob.").size());
  return std::ranges::find(kEndpointSuffixes, suffix) != kEndpointSuffixes.end() ||
         (!account.suffix.empty() && suffix == account.suffix);
}

/// Whether a URL in path style is that of an emulator on this machine, for which the SAS was given: by --sas, or by the
/// environment with the account's name.
bool is_emulator(const UrlParts& url, const std::string& name, const AzureAccount& account,
                 const Credentials& credentials) {
  const std::string host = host_of(url.authority);
  const bool is_here =
      host == "localhost" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
  return is_here && !account.sas.empty() && (credentials.sas_is_for_all || name == account.name);
}

/// The credentials for `url`, in whose query the person may have written a SAS for it.
AzureIdentity identity_of(const std::string& source, const UrlParts& url, const AzureAccount& account,
                          const AzurePlace& place, const Credentials& credentials) {
  if (!url.query.empty()) return {.sas = Sas::parse(url.query)};
  const bool named = place.endpoint == account.endpoint;
  if (!named && !is_azure_host(split_url(place.endpoint)->authority, account) &&
      !is_emulator(*split_url(place.endpoint), place.account, account, credentials)) {
    if (!account.has_secret()) return {};
    throw wrong(
        source,
        "this is not a known endpoint of Azure Storage, so neither the SAS nor the key is sent there; if it is your "
        "account's, name it in AZURE_STORAGE_CONNECTION_STRING (BlobEndpoint=…), or append the SAS to the URL");
  }
  AzureIdentity identity;
  // What lets us into one account must not be tried on another one.
  const bool own = account.name == place.account;
  if (!account.sas.empty() && (own || account.name.empty() || credentials.sas_is_for_all)) {
    identity.sas = Sas::parse(account.sas);
    if (credentials.renewed_sas) {
      identity.renew = [renewed = credentials.renewed_sas]() -> std::optional<Sas> { return Sas::parse(renewed()); };
    }
  }
  if (!account.key.empty() && own) {
    identity.key = decode_base64(account.key);
    if (!identity.key)
      throw Error(ErrorCode::kInvalidArgument, "the key of the storage account is not base64; is it cut off?");
  }
  return identity;
}

/// "/CONTAINER/PATH" behind an endpoint; `is_encoded`: with %XX for some characters.
AzurePlace place_of(const std::string& source, std::string endpoint, std::string account, std::string_view path,
                    bool is_encoded) {
  std::vector<std::string> parts;
  for (const std::string& part : split(path, '/')) {
    if (!part.empty()) parts.push_back(is_encoded ? decode(part) : part);
  }
  if (parts.empty()) throw wrong(source, "the name of a container is missing");
  AzurePlace place{
      .endpoint = std::move(endpoint), .account = std::move(account), .container = parts.front(), .path = {}};
  for (std::size_t i = 1; i < parts.size(); ++i) place.path += (i > 1 ? "/" : "") + parts[i];
  if (place.path.find('*') != std::string::npos) {
    throw wrong(source, kStarInside);
  }
  if (place.path.find('\\') != std::string::npos)
    throw wrong(source, "Azure Blob Storage makes a '/' of each '\\', so that this would name another object");
  return place;
}

std::unique_ptr<Source> open_az(const std::string& source, const UrlParts& url, const Credentials& credentials) {
  const AzureAccount account = account_of(credentials);
  const std::size_t at = url.authority.find('@');
  if (at != std::string::npos) {
    std::string host = url.authority.substr(at + 1);
    if (const std::size_t lake = host.find(kLakeHost); lake != std::string::npos)
      host.replace(lake, kLakeHost.size(), kBlobHost);
    const std::string name = host.substr(0, host.find('.'));
    AzurePlace place =
        place_of(source, "https://" + host, name, url.authority.substr(0, at) + url.path, url.is_encoded);
    AzureIdentity identity = identity_of(source, url, account, place, credentials);
    return open_azure_blob(std::move(place), std::move(identity));
  }
  if (account.name.empty() && account.endpoint.empty()) {
    throw wrong(source,
                "whose account is it? Set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING, or name it: "
                "az://CONTAINER@ACCOUNT.blob.core.windows.net/PATH");
  }
  const std::string endpoint =
      account.endpoint.empty() ? fmt::format("https://{}.blob.core.windows.net", account.name) : account.endpoint;
  AzurePlace place = place_of(source, endpoint, account.name, url.authority + url.path, url.is_encoded);
  AzureIdentity identity = identity_of(source, url, account, place, credentials);
  return open_azure_blob(std::move(place), std::move(identity));
}

std::unique_ptr<Source> open_s3_url(const std::string& source, const UrlParts& url, const Credentials& credentials) {
  S3Place place{
      .endpoint = credentials.s3_endpoint, .region = credentials.aws_region, .bucket = url.authority, .path = {}};
  while (place.endpoint.ends_with('/')) place.endpoint.pop_back();
  if (!place.endpoint.empty() && !split_url(place.endpoint)) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("AWS_ENDPOINT_URL is '{}', which is no URL", place.endpoint));
  }
  if (place.region.empty()) place.region = "us-east-1";
  for (const std::string& part : split(url.path, '/')) {
    if (!part.empty()) place.path += (place.path.empty() ? "" : "/") + part;
  }
  if (place.path.find('*') != std::string::npos) throw wrong(source, kStarInside);
  return open_s3(std::move(place), credentials.aws_keys);
}

bool has_sas(const std::string& query) {
  const auto parameters = parse_query(query);
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(parameters, [&](const auto& parameter) { return parameter.first == name; });
  };
  return has("sig") && has("sv");
}

/// The account and its endpoint, where a URL of HTTP is one of Azure Storage's: in host style, or in the path style of
/// the endpoint that the connection string names, or of an emulator where a SAS follows.
std::optional<AzurePlace> azure_place(const std::string& source, const UrlParts& url, const AzureAccount& account,
                                      const Credentials& credentials) {
  const std::string origin = url.scheme + "://" + url.authority;
  const std::string whole = origin + url.path;
  if (!account.endpoint.empty() && whole.starts_with(account.endpoint + "/")) {
    return place_of(source, account.endpoint, account.name, whole.substr(account.endpoint.size()), url.is_encoded);
  }
  const std::string host = host_of(url.authority);
  if (is_azure_host(url.authority, account) || host.find(kBlobHost) != std::string::npos) {
    return place_of(source, origin, host.substr(0, host.find('.')), url.path, url.is_encoded);
  }
  const std::size_t begin = std::min<std::size_t>(1, url.path.size());
  const std::size_t end = std::min(url.path.find('/', 1), url.path.size());
  const std::string name = decode(url.path.substr(begin, end - std::min(begin, end)));
  const bool has_container = url.path.find_first_not_of('/', end) != std::string::npos;
  if (!has_sas(url.query) && !(has_container && is_emulator(url, name, account, credentials))) return std::nullopt;
  return place_of(source, origin + url.path.substr(0, end), name, url.path.substr(end), url.is_encoded);
}

/// An Azure container under a URL of HTTP; nothing for other servers.
std::unique_ptr<Source> open_azure_url(const std::string& source, const UrlParts& url, const Credentials& credentials) {
  const AzureAccount account = account_of(credentials);
  std::optional<AzurePlace> place = azure_place(source, url, account, credentials);
  if (!place) return nullptr;
  AzureIdentity identity = identity_of(source, url, account, *place, credentials);
  return open_azure_blob(std::move(*place), std::move(identity));
}

std::unique_ptr<Source> open_list(const std::string& path) {
  const Bytes bytes = read_file(path, kMostListBytes);
  std::vector<std::string> urls;
  for (std::string line : split(as_text(bytes), '\n')) {
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.pop_back();
    if (!line.empty() && line.front() != '#') urls.push_back(std::move(line));
  }
  if (urls.empty()) throw Error(ErrorCode::kInvalidArgument, path + " lists no URLs");
  return open_http_files("the list " + path, urls);
}

/// `first_of`: the value of the first of some variables that is set.
std::optional<AwsKeys> aws_keys_from(const std::function<std::string(std::initializer_list<const char*>)>& first_of) {
  AwsKeys keys{.access_key = first_of({"AWS_ACCESS_KEY_ID"}),
               .secret_key = first_of({"AWS_SECRET_ACCESS_KEY"}),
               .session_token = first_of({"AWS_SESSION_TOKEN"})};
  const std::string profile = first_of({"AWS_PROFILE"});
  if (!keys.access_key.empty() && !keys.secret_key.empty()) return keys;
  std::string file = first_of({"AWS_SHARED_CREDENTIALS_FILE"});
  if (file.empty()) file = first_of({"HOME"}) + "/.aws/credentials";
  std::error_code failure;
  const bool there = std::filesystem::exists(file, failure);
  auto found = there ? aws_keys_of_profile(std::string(as_text(read_file(file, kMostKeyFileBytes))),
                                           profile.empty() ? "default" : profile)
                     : std::nullopt;
  if (!found && !profile.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("AWS_PROFILE is '{}', and {} has no such profile", profile, file));
  }
  return found;
}

}  // namespace

Credentials credentials_from(const std::vector<std::string>& environment) {
  std::map<std::string, std::string, std::less<>> variables;
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  const auto first_of = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* name : names) {
      const auto found = variables.find(name);
      if (found != variables.end() && !found->second.empty()) return found->second;
    }
    return {};
  };
  return {.azure_connection_string = first_of({"AZURE_STORAGE_CONNECTION_STRING"}),
          .azure_account = first_of({"AZURE_STORAGE_ACCOUNT"}),
          .azure_key = first_of({"AZURE_STORAGE_KEY"}),
          .azure_sas = first_of({"AZURE_STORAGE_SAS_TOKEN"}),
          .aws_keys = aws_keys_from(first_of),
          .s3_endpoint = first_of({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}),
          .aws_region = first_of({"AWS_REGION", "AWS_DEFAULT_REGION"})};
}

bool is_of_azure(const std::string& name, const Credentials& credentials) {
  const auto url = name.starts_with('@') ? std::nullopt : split_url(name);
  if (!url || url->scheme == "file" || url->scheme == "s3" || url->scheme == kStoreScheme) return false;
  if (url->scheme != "http" && url->scheme != "https") return true;
  return azure_place(name, *url, account_of(credentials), credentials).has_value();
}

std::unique_ptr<Source> open_source(const std::string& name, const Credentials& credentials) {
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, "the name of a source is empty");
  if (name.front() == '@') return open_list(name.substr(1));
  const auto url = split_url(name);
  if (!url) return open_local_source(name);
  check_no_fragment(name);
  if (url->scheme == "file") return open_local_source(path_of_file_url(name));
  if (url->authority.empty()) throw wrong(name, "it names no server and no container");
  if (url->scheme == "az" || url->scheme == "abfs" || url->scheme == "abfss" || url->scheme == "wasbs") {
    return open_az(name, *url, credentials);
  }
  if (url->scheme == "s3") return open_s3_url(name, *url, credentials);
  if (url->scheme != "http" && url->scheme != "https") {
    throw wrong(name,
                fmt::format("{}:// is not known; az://, s3://, https://, http://, file:// and paths are", url->scheme));
  }
  if (auto azure = open_azure_url(name, *url, credentials)) return azure;
  return open_http_source(name);
}

}  // namespace gyre::store
