#include "apps/gyre/store_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/file_limit.h"
#include "apps/gyre/run_command.h"
#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/log.h"
#include "gyre/base/parse.h"
#include "gyre/base/secret_key.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/table.h"
#include "gyre/store/node/chunk_cipher.h"
#include "gyre/store/node/client.h"
#include "gyre/store/node/data_files.h"
#include "gyre/store/node/node.h"
#include "gyre/store/node/server.h"
#include "gyre/store/reading/mount.h"
#include "gyre/store/sources/open.h"
#include "gyre/store/staging/patterns.h"

namespace gyre::app {

namespace {

using Environment = std::vector<std::string>;
namespace node = store::node;

constexpr std::size_t kMostKeyFileBytes = 4'096;
constexpr std::size_t kCopyBytes = std::size_t{4} << 20;
constexpr std::chrono::milliseconds kClientWait{2'000};
constexpr std::int64_t kMostWaitSeconds = 7 * 24 * 3600;
constexpr int kMostFetches = 256;

/// Which store is meant.
struct Place {
  std::string folder{};
  std::string job{};

  void add_options(CLI::App& verb) {
    verb.add_option("--store-dir", folder, "Where the stores of this node lie")->required()->type_name("DIR");
    verb.add_option("--job", job, "The store's name: a folder below it (default: store)")->type_name("NAME");
    job = "store";
  }
  std::filesystem::path path() const {
    store::check_object_name(job, "--job");
    if (job.find('/') != std::string::npos)
      throw UsageError(fmt::format("--job is '{}'; a name without / is needed", job));
    return std::filesystem::absolute(folder).lexically_normal() / job;
  }
  std::string url() const { return fmt::format("{}://{}", store::kStoreScheme, path().string()); }
  std::shared_ptr<node::Client> client() const { return node::Client::open(path(), kClientWait); }
};

struct ServeOptions {
  Place place{};
  std::vector<std::string> sources{};
  std::string nodes{};
  std::string listen{};
  std::string key_file{};
  std::string include{};
  std::string exclude{};
  std::string memory = "1GB";
  std::string patience = "300";
  std::string log_level = "warning";
  std::uint32_t id = 0;
  int fetches = 16;
  bool on_demand = false;
  bool encrypt = false;

  void add_options(CLI::App& verb);
  node::NodeOptions node_options() const;
  /// Null where chunks are not encrypted.
  std::shared_ptr<const node::ChunkSecret> secret(const net::JobKey& key) const;
  std::optional<net::Endpoint> endpoint(const node::Members& members) const;
};

void ServeOptions::add_options(CLI::App& verb) {
  place.add_options(verb);
  verb.add_option("SOURCE", sources, "What the store holds, as for `gyre stage`: alike on all nodes")->required();
  verb.add_option("--nodes", nodes,
                  "All nodes of the store, this one included: 0=tcp:10.0.0.1:7000,1=tcp:10.0.0.2:7000 (default: this "
                  "one alone)")
      ->type_name("LIST");
  verb.add_option("--node", id, "The number of this node (default: 0)")->type_name("N");
  verb.add_option("--listen", listen, "Where to listen for other nodes, if not as --nodes says")->type_name("ENDPOINT");
  verb.add_option("--key-file", key_file,
                  "The job's key, 64 hexadecimal digits (`openssl rand -hex 32`) that only its user can read: nodes "
                  "that do not "
                  "know it read nothing")
      ->type_name("FILE");
  verb.add_option("--include-pattern", include,
                  "Only files with these names: * and ? stand for others; divided by ; or ,")
      ->type_name("PATTERNS");
  verb.add_option("--exclude-pattern", exclude, "No files with these names")->type_name("PATTERNS");
  verb.add_flag("--on-demand", on_demand, "Fetch only what is read, nothing ahead");
  verb.add_flag("--encrypt", encrypt,
                "Encrypt what lies on this node's disk (AES-256-GCM), under the key of --key-file, which must be on "
                "another file system; without one under a random key that ends with this daemon");
  verb.add_option("--connections", fetches, "Chunks that are fetched at once, at most (default: 16)")
      ->check(CLI::Range(1, kMostFetches))
      ->type_name("N");
  verb.add_option("--memory", memory, "For chunks that are being fetched (default: 1GB)")->type_name("SIZE");
  verb.add_option("--give-up-after", patience,
                  "A reading fails when nothing of its chunk has arrived from the source for so long (default: 300)")
      ->type_name("SECONDS");
  verb.add_option("--log-level", log_level, "debug, info, warning (default) or error")->type_name("LEVEL");
}

SecretKey read_key(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw system_error("cannot read the key in " + path, errno);
  struct stat status{};
  if (::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("others than its user can read the key in {0}, and with it the store; if nobody has done so, "
                    "`chmod 600 {0}`, else make another key",
                    path));
  }
  Bytes bytes = read_secret(file.get(), kMostKeyFileBytes, path);
  const WipedAtEnd wiped(bytes);
  std::string_view digits = as_text(bytes);
  while (digits.ends_with('\n')) digits.remove_suffix(1);
  if (const auto key = key_from_hex(digits)) return *key;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} holds no key; 64 hexadecimal digits are needed, as `openssl rand -hex 32` writes them", path));
}

node::NodeOptions ServeOptions::node_options() const {
  check_log_level(log_level, "--log-level");
  node::NodeOptions options{.id = id};
  if (nodes.empty()) {
    options.members.nodes.push_back({.id = id});
  } else {
    if (key_file.empty()) throw UsageError("--nodes needs --key-file: without a key everybody could read the store");
    options.members = node::parse_members(nodes, 1);
  }
  if (!key_file.empty()) options.key = read_key(key_file);
  if (!options.members.has(id))
    throw UsageError(fmt::format("--nodes does not name node {}, which --node says this is", id));
  options.connections = fetches;
  options.memory_bytes = parse_bytes(memory, "--memory");
  options.patience = std::chrono::seconds(parse_integer(patience, "--give-up-after", 1, kMostWaitSeconds));
  options.ahead = !on_demand;
  options.logger = make_logger(fmt::format("store {}", id), log_level);
  return options;
}

/// The file system of a path, or of the nearest folder above it that there is.
std::optional<dev_t> device_of(std::filesystem::path path) {
  struct stat status{};
  while (::stat(path.c_str(), &status) != 0) {
    if (!path.has_relative_path()) return std::nullopt;
    path = path.parent_path();
  }
  return status.st_dev;
}

std::shared_ptr<const node::ChunkSecret> ServeOptions::secret(const net::JobKey& key) const {
  if (!encrypt) return nullptr;
  if (key_file.empty()) return std::make_shared<const node::ChunkSecret>(net::make_random_key());
  if (device_of(key_file) == device_of(place.path())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the key in {} lies on the disk that is to be encrypted ({}), where whoever has the disk "
                            "finds it; keep it on another file system, in /dev/shm for example, or give it through a "
                            "pipe (--key-file /dev/stdin)",
                            key_file, place.folder));
  }
  return std::make_shared<const node::ChunkSecret>(derive_key(key, "gyre store: chunks on disks"));
}

std::optional<net::Endpoint> ServeOptions::endpoint(const node::Members& members) const {
  if (nodes.empty() && !listen.empty())
    throw UsageError("--listen is for a store on several nodes: --nodes is missing");
  if (nodes.empty()) return std::nullopt;
  return net::parse_endpoint(listen.empty() ? members.endpoint_of(id) : listen);
}

int serve(const ServeOptions& options, const Environment& environment) {
  node::NodeOptions node_options = options.node_options();
  const auto endpoint = options.endpoint(node_options.members);
  const node::ChunkFolder folder(options.place.path(), options.secret(node_options.key));
  EndSignals signals;
  raise_file_limit();  // The usual one, 1,024, is less than connections and chunks need.
  const UniqueFd lock = folder.take();
  if (options.encrypt && options.key_file.empty()) folder.remove_all();  // Nobody has their key any more.
  const store::NamePatterns patterns(options.include, options.exclude);
  store::WaitNotice notice(store::say_on_stderr("gyre store serve"));
  std::vector<std::unique_ptr<store::Source>> sources;
  std::vector<store::Listing> listings;
  for (const std::string& name : options.sources) {
    auto source = store::open_source(name, store::credentials_from(environment));
    listings.push_back(
        {.source = source->name(),
         .objects = patterns.select(source->list({.notice = &notice}, node_options.patience), source->name())});
    sources.push_back(std::move(source));
  }
  node::Catalog catalog(store::make_manifest(std::move(listings), store::Inflation::kNone));
  ::malloc_trim(0);  // Of the listing small pieces are left, which malloc would keep.
  folder.remove_unversioned(catalog);
  const std::string ready = fmt::format("node {} of {} serves {} files, {}, in {}\n", options.id,
                                        node_options.members.nodes.size(), catalog.manifest().entries.size(),
                                        format_bytes(catalog.manifest().stored_bytes()), folder.root().string());
  node::Node here(std::move(catalog), sources, folder, std::move(node_options));
  const node::Server server(here, folder, endpoint);
  fmt::print("{}", ready);
  std::fflush(stdout);
  signals.wait(-1);
  return 0;
}

int list(const Place& place) {
  const auto client = place.client();
  for (const store::ManifestEntry& entry : client->catalog().manifest().entries) {
    fmt::print("{:>15} {}\n", entry.object.size_bytes, cli::printable(entry.target));
  }
  return 0;
}

int copy_out(const Place& place, const std::vector<std::string>& names) {
  const auto client = place.client();
  for (const std::string& name : names) static_cast<void>(client->open_file(name));  // Or its error.
  // As programs read: without the daemon, should it end meanwhile, from the set's source.
  const store::DataFiles files = node::data_files_from_environment(0);
  static_cast<void>(files.add(place.url()));
  const data::FileOpener open = files.opener();
  static_cast<void>(open.folders().list(place.url()));  // While the daemon is there.
  Bytes buffer(kCopyBytes);
  for (const std::string& name : names) {
    const auto file = open(place.url() + "/" + name);
    for (std::uint64_t done = 0; done < file->size_bytes();) {
      const auto part = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), file->size_bytes() - done));
      file->read_at(done, part);
      write_all(STDOUT_FILENO, part, "cannot write " + name + " to standard output");
      done += part.size();
    }
  }
  return 0;
}

bool is_mount_point(const std::string& folder) {
  struct statx status{};
  if (::statx(AT_FDCWD, folder.c_str(), 0, 0, &status) != 0) return false;
  return (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/// Error where something would be hidden by a mount there.
void check_mount_place(const std::string& folder) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("cannot mount in {}: {}", folder, reason));
  };
  std::error_code trouble;
  const bool is_empty = std::filesystem::is_empty(folder, trouble);
  if (trouble == std::errc::not_connected)
    refuse(fmt::format("the process of an earlier mount there is gone; `fusermount3 -u {}` ends it", folder));
  if (trouble) refuse(trouble.message());
  if (is_mount_point(folder)) refuse("something is mounted there already; unmount it, or name another folder");
  if (!is_empty) refuse("it is not empty; what is in it would be hidden");
}

int mount(const Place& place, const std::string& folder) {
  constexpr std::uint64_t kReadAheadBytes = std::uint64_t{1} << 30;
  const std::string name = place.url();
  check_mount_place(folder);
  const store::DataFiles files = node::data_files_from_environment(kReadAheadBytes);
  static_cast<void>(files.opener().folders().list(name));  // Or its error, before anything is mounted.
  store::serve_mount(
      files.opener(), name, std::filesystem::absolute(folder),
      [&] {
        fmt::print("{} is mounted in {}\n", name, folder);
        std::fflush(stdout);
      },
      [](const std::string& failure) { fmt::print(stderr, "gyre store mount: {}\n", cli::printable(failure)); });
  return 0;
}

int members(const Place& place, const std::string& nodes) {
  const auto client = place.client();
  node::Members now = client->members();
  if (!nodes.empty()) {
    const node::Members wanted = node::parse_members(nodes, now.epoch + 1);
    now = client->change_members(wanted);
    if (now != wanted) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("somebody else has changed the nodes at the same time; they are {} now (epoch {}). If "
                              "they are still to be others, give the same command again",
                              node::to_string(now), now.epoch));
    }
  }
  fmt::print("epoch {}: {}\n", now.epoch, node::to_string(now));
  return 0;
}

}  // namespace

std::unique_ptr<VerbGroup> store_verbs(CLI::App& app) {
  auto group =
      std::make_unique<VerbGroup>(app, "store", "A data set on the nodes' own disks, read once from its source",
                                  "  gyre store serve --store-dir /scratch/store https://host/set/\n"
                                  "  gyre store serve --store-dir /scratch/store --key-file key --node 0 --nodes "
                                  "0=tcp:10.0.0.1:7000,1=tcp:10.0.0.2:7000 az://data/set\n"
                                  "  gyre store cat --store-dir /scratch/store train/part_001.bin");
  CLI::App* verb = group->app().add_subcommand("serve", "Run this node's part of a store until Ctrl-C");
  auto options = std::make_shared<ServeOptions>();
  options->add_options(*verb);
  group->add(verb, [options](const Environment& environment) { return serve(*options, environment); });

  const auto add = [&](const char* name, const char* description) {
    CLI::App* added = group->app().add_subcommand(name, description);
    auto place = std::make_shared<Place>();
    place->add_options(*added);
    return std::pair(added, place);
  };
  const auto [list_verb, list_place] = add("list", "Show the files of the store, and their sizes");
  group->add(list_verb, [place = list_place](const Environment&) { return list(*place); });
  const auto [cat_verb, cat_place] = add("cat", "Write files of the store to standard output");
  auto names = std::make_shared<std::vector<std::string>>();
  cat_verb->add_option("NAME", *names, "Which, as `gyre store list` shows them")->required();
  group->add(cat_verb, [place = cat_place, names](const Environment&) { return copy_out(*place, *names); });
  const auto [status_verb, status_place] = add("status", "Show what this node holds and has done, as JSON");
  group->add(status_verb, [place = status_place](const Environment&) {
    fmt::print("{}", place->client()->status());
    return 0;
  });
  const auto [mount_verb, mount_place] = add("mount", "Show the files of the store in an empty folder until Ctrl-C");
  auto folder = std::make_shared<std::string>();
  mount_verb->add_option("DIR", *folder, "The folder")->required();
  group->add(mount_verb, [place = mount_place, folder](const Environment&) { return mount(*place, *folder); });
  const auto [members_verb, members_place] = add("members", "Show the nodes of the store, or change them on all nodes");
  auto nodes = std::make_shared<std::string>();
  members_verb->add_option("--set", *nodes, "The nodes from now on, as for `gyre store serve --nodes`")
      ->type_name("LIST");
  group->add(members_verb, [place = members_place, nodes](const Environment&) { return members(*place, *nodes); });
  return group;
}

}  // namespace gyre::app
