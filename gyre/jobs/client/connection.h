#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/net/endpoint.h"

// Where a job server listens, and what proves who asks.
namespace gyre::jobs::client {

/// Where a server is, and what it proves itself with.
struct ServerPlace {
  net::Endpoint endpoint{};
  std::string fingerprint{};  ///< Of its certificate, where it is reached over TCP.

  bool operator==(const ServerPlace&) const = default;
};

/// How that is written: "unix:/run/gyre/gyre.sock", "https://HOST:7710#FINGERPRINT". Error(kInvalidArgument) says what
/// is wrong with another text.
ServerPlace parse_server(std::string_view text);
std::string server_text(const ServerPlace& place);

/// Where the server of root, or of the user of this environment, listens unless --listen names another place: a unix
/// socket in a folder where nobody else can put one. Empty: nowhere.
std::filesystem::path door_of_root();
std::filesystem::path door_of_user(const std::vector<std::string>& environment);

/// What a server leaves for the verbs of its user: a file of JSON that nobody else can read.
struct ServerFile {
  std::string server{};  ///< As parse_server() reads it.
  std::string user{};
  std::string token{};           ///< Empty: on a unix socket the kernel says who asks.
  std::string remote{};          ///< The same server over TCP; empty: it does not listen there.
  std::string server_account{};  ///< By name: whose server may get the token. Empty: ours, or root's.
  std::string folder{};          ///< Of the server's state, on its own machine. Empty: not known.

  bool operator==(const ServerFile&) const = default;
};

/// Nothing where there is no such file. Error(kInvalidArgument) when others can read it, or it is none.
std::optional<ServerFile> read_server_file(const std::filesystem::path& path);
/// For its user alone, in folders that it makes. Error(kIo).
void write_server_file(const std::filesystem::path& path, const ServerFile& file);
/// $XDG_CONFIG_HOME/gyre/server.json, else ~/.config/gyre/server.json. `environment`: NAME=VALUE.
std::filesystem::path default_server_file(const std::vector<std::string>& environment);

struct Connection {
  ServerPlace place{};
  std::string token{};                    ///< Empty: on a unix socket none is needed.
  std::optional<uid_t> server_account{};  ///< As net::http::ClientOptions has it.
};

/// What the command line says; empty where it says nothing.
struct ConnectionOptions {
  std::string server{};      ///< As parse_server() reads it, or the path of a ServerFile.
  std::string token_file{};  ///< Nobody else may be able to read it.
};

/// The command line comes before GYRE_SERVER and GYRE_TOKEN, these before the default file, and this before the doors
/// of the user's own server and of root's. A file's token goes to the server that it names, and to no other one.
/// Error(kNotFound | kInvalidArgument) names what is missing, and the remedy.
Connection find_connection(const ConnectionOptions& options, const std::vector<std::string>& environment);

/// The address over TCP of the server that is here at `server`, as the file says that the options, GYRE_SERVER or the
/// default name. Empty where no such file knows it.
std::string remote_of(const std::string& server, const ConnectionOptions& options,
                      const std::vector<std::string>& environment);

/// Whose server listens at a unix socket, by name; empty for TCP. Error(kPeerLost | kTimeout) where none does.
std::string account_of_server(const Connection& connection);

}  // namespace gyre::jobs::client
