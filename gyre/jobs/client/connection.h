#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gyre/net/endpoint.h"

// Where a job server listens, and what proves who asks.
namespace gyre::jobs::client {

/// How a server's place is written: "http://127.0.0.1:7710", "unix:/run/gyre.sock". Error(kInvalidArgument) says what
/// is wrong with another text; "https" and hosts beyond this one are refused, because the server speaks plain HTTP.
net::Endpoint parse_server(std::string_view text);
std::string server_text(const net::Endpoint& endpoint);

/// What a server leaves for the verbs of its user: a file of JSON that nobody else can read.
struct ServerFile {
  std::string server{};  ///< As parse_server() reads it.
  std::string user{};
  std::string token{};

  bool operator==(const ServerFile&) const = default;
};

/// Nothing where there is no such file. Error(kInvalidArgument) when others can read it, or it is none.
std::optional<ServerFile> read_server_file(const std::filesystem::path& path);
/// For its user alone, in folders that it makes. Error(kIo).
void write_server_file(const std::filesystem::path& path, const ServerFile& file);
/// $XDG_CONFIG_HOME/gyre/server.json, else ~/.config/gyre/server.json. `environment`: NAME=VALUE.
std::filesystem::path default_server_file(const std::vector<std::string>& environment);

struct Connection {
  net::Endpoint endpoint{};
  std::string token{};
};

/// What the command line says; empty where it says nothing.
struct ConnectionOptions {
  std::string server{};      ///< As parse_server() reads it, or the path of a ServerFile.
  std::string token_file{};  ///< Nobody else may be able to read it.
};

/// The command line comes before GYRE_SERVER and GYRE_TOKEN, and these before the default file. Its token goes to the
/// server that it names, and to no other one. Error(kNotFound | kInvalidArgument) names what is missing, and the
/// remedy.
Connection find_connection(const ConnectionOptions& options, const std::vector<std::string>& environment);

}  // namespace gyre::jobs::client
