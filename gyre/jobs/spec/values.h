#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gyre::jobs::spec {

// What job files and cluster files have in common. All structs are plain values: parse.h makes them out of files,
// write.h writes them again. A text may refer to variables ($NAME, ${NAME}) until a node expands them.

/// A secret that rests in a key vault.
struct SecretReference {
  std::string source_vault_id;
  std::string secret_url;

  bool operator==(const SecretReference&) const = default;
};

/// A password or key: its text, or where it rests. Parsed ones have exactly one of the two, except in credentials of
/// mounts, which may have neither.
struct SecretValue {
  std::optional<std::string> text;
  std::optional<SecretReference> reference;

  bool operator==(const SecretValue&) const = default;
};

struct EnvironmentVariable {
  std::string name;
  std::string value;

  bool operator==(const EnvironmentVariable&) const = default;
};

/// An environment variable whose value is never shown, logged or returned; its name is.
struct SecretVariable {
  std::string name;
  SecretValue value;

  bool operator==(const SecretVariable&) const = default;
};

struct AzureFileShare {
  std::string account_name;
  std::string url;
  std::string relative_mount_path;
  SecretValue account_key;
  std::string file_mode = "0777";       ///< Octal, as mount options take it.
  std::string directory_mode = "0777";  ///< Octal.

  bool operator==(const AzureFileShare&) const = default;
};

struct AzureBlobFileSystem {
  std::string account_name;
  std::string container_name;
  std::string relative_mount_path;
  SecretValue account_key;
  std::optional<std::string> mount_options;

  bool operator==(const AzureBlobFileSystem&) const = default;
};

struct FileServerMount {
  std::string file_server_id;
  std::optional<std::string> source_directory;
  std::string relative_mount_path;
  std::optional<std::string> mount_options;

  bool operator==(const FileServerMount&) const = default;
};

/// Any file system that a command can mount; the mount point is appended to the command.
struct UnmanagedFileSystem {
  std::string mount_command;
  std::string relative_mount_path;

  bool operator==(const UnmanagedFileSystem&) const = default;
};

/// File systems of a cluster (below $AZ_BATCHAI_MOUNT_ROOT) or of a job (below $AZ_BATCHAI_JOB_MOUNT_ROOT). A relative
/// mount path is never empty, never absolute, has no "..", and occurs once over all four kinds.
struct MountVolumes {
  std::vector<AzureFileShare> azure_file_shares;
  std::vector<AzureBlobFileSystem> azure_blob_file_systems;
  std::vector<FileServerMount> file_servers;
  std::vector<UnmanagedFileSystem> unmanaged_file_systems;

  bool empty() const {
    return azure_file_shares.empty() && azure_blob_file_systems.empty() && file_servers.empty() &&
           unmanaged_file_systems.empty();
  }
  bool operator==(const MountVolumes&) const = default;
};

}  // namespace gyre::jobs::spec
