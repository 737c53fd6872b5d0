#include "gyre/jobs/spec/internal/value_readers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "gyre/base/parse.h"

namespace gyre::jobs::spec {

namespace {

constexpr std::string_view kAccountPlaceholder = "<AZURE_BATCHAI_STORAGE_ACCOUNT>";
constexpr std::string_view kKeyPlaceholder = "<AZURE_BATCHAI_STORAGE_KEY>";

bool is_shell_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && is_letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || is_digit(c); });
}

std::string with_account(std::string text, const Reading& reading) {
  const std::size_t at = text.find(kAccountPlaceholder);
  if (at != std::string::npos && reading.options.storage_account)
    text.replace(at, kAccountPlaceholder.size(), *reading.options.storage_account);
  return text;
}

/// "acc" of "https://acc.file.core.windows.net/share"; empty where the address does not begin in that way.
std::string account_of_address(std::string_view address) {
  constexpr std::string_view kAfterScheme = "://";
  const std::size_t scheme = address.find(kAfterScheme);
  if (scheme == std::string_view::npos) return "";
  std::string_view host = address.substr(scheme + kAfterScheme.size());
  host = host.substr(0, host.find_first_of("/?#"));
  const std::size_t dot = host.find('.');
  return std::string(dot == std::string_view::npos ? "" : host.substr(0, dot));
}

/// `accountName`, which Batch AI's client takes from `url` where a file leaves it out.
std::string read_account_of_share(ObjectReader& mount, const std::string& url) {
  constexpr std::string_view kName = "accountName";
  if (const auto given = mount.text_or_nothing(kName)) return with_account(*given, mount.reading());
  std::string account = account_of_address(url);
  if (account.empty() && !url.empty()) {
    mount.missing(kName,
                  "is missing, and azureFileUrl does not name an account as "
                  "https://ACCOUNT.file.core.windows.net/SHARE does");
  }
  return account;
}

/// `credentials`; the options' key for their account where a file leaves it open.
SecretValue read_account_key(ObjectReader& mount, const std::string& account) {
  SecretValue key;
  if (auto credentials = mount.object("credentials")) {
    key = read_secret(*credentials, "accountKey", false);
    credentials->finish();
  }
  const ParseOptions& options = mount.reading().options;
  const bool open = (!key.text && !key.reference) || key.text == kKeyPlaceholder;
  if (open && options.storage_key && options.storage_account == account) key.text = options.storage_key;
  return key;
}

std::string read_mode(ObjectReader& mount, std::string_view name) {
  const std::string mode = mount.text_or_nothing(name).value_or("0777");
  const bool octal = mode.size() <= 5 && mode.find_first_not_of("01234567") == std::string::npos;
  if (!octal) mount.error(name, "must be an octal mode such as 0777");
  return mode;
}

/// The mount paths of one `mountVolumes`, which must differ.
class MountPaths {
 public:
  std::string read(ObjectReader& mount) {
    constexpr std::string_view kName = "relativeMountPath";
    const std::string text = mount.required_text(kName);
    if (text.empty()) return "";
    if (text.starts_with('/')) mount.error(kName, "must be a relative path");
    std::string path = relative_path(mount, kName, text);
    if (path.empty()) mount.error(kName, "names no directory");
    const auto [earlier, is_new] = lines_.emplace(path, mount.place_of(kName).line);
    if (!is_new && !path.empty()) mount.error(kName, fmt::format("is the mount path of line {} too", earlier->second));
    return path;
  }

 private:
  std::map<std::string, int> lines_;
};

void read_azure_file_shares(ObjectReader& volumes, MountPaths& paths, MountVolumes& result) {
  for (ObjectReader& mount : volumes.objects("azureFileShares")) {
    AzureFileShare share;
    share.url = with_account(mount.required_text("azureFileUrl"), mount.reading());
    share.account_name = read_account_of_share(mount, share.url);
    share.relative_mount_path = paths.read(mount);
    share.account_key = read_account_key(mount, share.account_name);
    share.file_mode = read_mode(mount, "fileMode");
    share.directory_mode = read_mode(mount, "directoryMode");
    mount.finish();
    result.azure_file_shares.push_back(std::move(share));
  }
}

void read_azure_blob_file_systems(ObjectReader& volumes, MountPaths& paths, MountVolumes& result) {
  for (ObjectReader& mount : volumes.objects("azureBlobFileSystems")) {
    AzureBlobFileSystem blobs;
    blobs.account_name = with_account(mount.required_text("accountName"), mount.reading());
    blobs.container_name = mount.required_text("containerName");
    blobs.relative_mount_path = paths.read(mount);
    blobs.account_key = read_account_key(mount, blobs.account_name);
    blobs.mount_options = mount.text_or_nothing("mountOptions");
    mount.finish();
    result.azure_blob_file_systems.push_back(std::move(blobs));
  }
}

void read_file_servers(ObjectReader& volumes, MountPaths& paths, MountVolumes& result) {
  for (ObjectReader& mount : volumes.objects("fileServers")) {
    FileServerMount server;
    server.file_server_id = read_resource_id(mount, "fileServer", true);
    server.source_directory = mount.text_or_nothing("sourceDirectory");
    server.relative_mount_path = paths.read(mount);
    server.mount_options = mount.text_or_nothing("mountOptions");
    mount.finish();
    result.file_servers.push_back(std::move(server));
  }
}

void read_unmanaged_file_systems(ObjectReader& volumes, MountPaths& paths, MountVolumes& result) {
  for (ObjectReader& mount : volumes.objects("unmanagedFileSystems")) {
    UnmanagedFileSystem system;
    system.mount_command = mount.required_text("mountCommand");
    system.relative_mount_path = paths.read(mount);
    mount.finish();
    result.unmanaged_file_systems.push_back(std::move(system));
  }
}

/// The name of a variable; "" where it cannot be one.
std::string read_variable_name(ObjectReader& variable) {
  std::string name = variable.required_text("name");
  if (name.find('=') != std::string::npos) {
    variable.error("name", "cannot be a variable: it has a \"=\"");
    return "";
  }
  if (!name.empty() && !is_shell_name(name))
    variable.warning("name", "is not a name that a shell can expand: letters, digits and _ make one");
  if (name.starts_with("AZ_BATCHAI_"))
    variable.warning("name", "begins with AZ_BATCHAI_: the service sets such variables, over this value");
  return name;
}

/// Puts `entry` into `list`, over an entry of the same name in either list.
template <typename Entry>
void put(ObjectReader& reader, Entry entry, std::vector<Entry>& list, std::map<std::string, int>& lines) {
  if (entry.name.empty()) return;
  const auto [earlier, is_new] = lines.emplace(entry.name, reader.place().line);
  if (!is_new) {
    reader.warning("name", fmt::format("is set in line {} too; this value counts", earlier->second));
    std::erase_if(list, [&](const Entry& other) { return other.name == entry.name; });
  }
  list.push_back(std::move(entry));
}

/// They become one environment.
void check_size(ObjectReader& owner, const std::vector<EnvironmentVariable>& variables,
                const std::vector<SecretVariable>& secrets) {
  std::size_t bytes = 0;
  for (const EnvironmentVariable& each : variables) bytes += each.name.size() + each.value.size() + 2;
  for (const SecretVariable& each : secrets) bytes += each.name.size() + each.value.text.value_or("").size() + 2;
  if (bytes <= kMostVariableBytes) return;
  owner.error(
      owner.has("environmentVariables") ? "environmentVariables" : "secrets",
      fmt::format("and secrets have {} bytes; {} are the limit, because Linux takes about 2 MB of variables and "
                  "arguments together: put the values into a file",
                  bytes, kMostVariableBytes));
}

}  // namespace

SecretValue read_secret(ObjectReader& owner, std::string_view name, bool required) {
  SecretValue secret;
  const std::string reference_name = fmt::format("{}SecretReference", name);
  secret.text = owner.text(name);
  owner.came_with(ApiVersion::k2018_03_01, reference_name);
  if (auto reference = owner.object(reference_name)) {
    secret.reference = SecretReference{.source_vault_id = read_resource_id(*reference, "sourceVault", true),
                                       .secret_url = reference->required_text("secretUrl")};
    reference->finish();
  }
  if (secret.text && secret.reference) owner.error(name, fmt::format("and {} exclude each other", reference_name));
  if (required && !owner.has(name) && !owner.has(reference_name))
    owner.missing(name, fmt::format("is missing, and so is {}: one of them is needed", reference_name));
  return secret;
}

void read_variables(ObjectReader& owner, std::vector<EnvironmentVariable>& variables,
                    std::vector<SecretVariable>& secrets) {
  std::map<std::string, int> lines;
  for (ObjectReader& reader : owner.objects("environmentVariables")) {
    EnvironmentVariable variable;
    variable.name = read_variable_name(reader);
    const std::optional<std::string> value = reader.text("value");
    if (!value && !reader.has("value") && reader.reading().version != ApiVersion::k2017_09_01_preview)
      reader.missing("value", "is missing; write \"\" for an empty value");
    variable.value = value.value_or("");
    reader.finish();
    put(reader, std::move(variable), variables, lines);
  }
  owner.came_with(ApiVersion::k2018_03_01, "secrets");
  for (ObjectReader& reader : owner.objects("secrets")) {
    SecretVariable secret;
    secret.name = read_variable_name(reader);
    secret.value = read_secret(reader, "value", true);
    reader.finish();
    std::erase_if(variables, [&](const EnvironmentVariable& other) { return other.name == secret.name; });
    put(reader, std::move(secret), secrets, lines);
  }
  check_size(owner, variables, secrets);
}

MountVolumes read_mount_volumes(ObjectReader& owner) {
  MountVolumes result;
  auto volumes = owner.object("mountVolumes");
  if (!volumes) return result;
  MountPaths paths;
  read_azure_file_shares(*volumes, paths, result);
  read_azure_blob_file_systems(*volumes, paths, result);
  read_file_servers(*volumes, paths, result);
  read_unmanaged_file_systems(*volumes, paths, result);
  volumes->finish();
  return result;
}

std::string read_resource_id(ObjectReader& owner, std::string_view name, bool required) {
  auto resource = required ? owner.required_object(name) : owner.object(name);
  if (!resource) return "";
  std::string id = resource->required_text("id");
  resource->finish();
  return id;
}

std::string relative_path(ObjectReader& owner, std::string_view name, std::string_view text) {
  std::string path;
  for (const std::string& step : split(text, '/')) {
    if (step.empty() || step == ".") continue;
    if (step == "..") {
      owner.error(name, "must not contain \"..\"");
      return "";
    }
    path += path.empty() ? step : "/" + step;
  }
  return path;
}

}  // namespace gyre::jobs::spec
