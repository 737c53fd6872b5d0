#include "apps/gyre/stage_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/gyre/end_signals.h"
#include "apps/gyre/stage_progress.h"
#include "apps/gyre/usage_error.h"
#include "gyre/base/bytes.h"
#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/cli/number_check.h"
#include "gyre/cli/output_file.h"
#include "gyre/cli/table.h"
#include "gyre/store/node/store_source.h"
#include "gyre/store/sources/open.h"
#include "gyre/store/sources/text.h"
#include "gyre/store/staging/patterns.h"
#include "gyre/store/uploading/upload.h"

namespace gyre::app {

namespace {

constexpr int kMostNodes = 65'536;
constexpr int kMostConnections = 256;
constexpr std::int64_t kMostPatienceSeconds = 7 * 24 * 3600;

/// A source as AzCopy names it, and whether it ends with "/*": then what is in the folder is meant, not the folder.
std::pair<std::string, bool> without_star(const std::string& name) {
  const auto url = store::split_url(name);
  const std::size_t end = url && !url->query.empty() ? name.size() - url->query.size() - 1 : name.size();
  if (end < 2 || name.compare(end - 2, 2, "/*") != 0) return {name, false};
  return {name.substr(0, end - 2) + name.substr(end), true};
}

/// The folder that AzCopy makes of a source, unless the source is one file: the last part of its path.
std::string folder_for(const std::string& name, const std::vector<store::Object>& objects) {
  const auto url = store::split_url(name);
  std::string path = url ? url->authority + url->path : name;
  while (path.ends_with('/')) path.pop_back();
  std::string last = path.substr(path.rfind('/') + 1);
  if (url && url->is_encoded) last = store::decode(last);
  if (objects.size() == 1 && objects.front().name == last) return {};
  return last == "." || last == ".." ? "" : last;
}

double parse_cap(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0) || value > 1e9) {
    throw UsageError(
        fmt::format("--cap-mbps is '{}'; a number of megabits per second is needed, 0 for no limit", text));
  }
  return value;
}

/// "0/4" as node 0 of 4.
std::pair<int, int> parse_part(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos)
    throw UsageError(fmt::format("--shard is '{}'; NODE/NODES is needed, such as 0/4", text));
  const auto nodes =
      static_cast<int>(parse_integer(text.substr(slash + 1), "the number of nodes in --shard", 1, kMostNodes));
  return {static_cast<int>(parse_integer(text.substr(0, slash), "the node in --shard", 0, nodes - 1)), nodes};
}

store::ShardRule shard_rule(const std::string& word) {
  if (word == "suffix") return store::ShardRule::kSuffix;
  return word == "range" ? store::ShardRule::kRange : store::ShardRule::kSize;
}

}  // namespace

bool hide_signatures(int argc, char** argv) {
  bool found = false;
  for (int i = 1; i < argc; ++i) {
    for (char* at = std::strstr(argv[i], "sig="); at != nullptr; at = std::strstr(at, "sig=")) {
      for (at += 4; *at != '\0' && *at != '&' && *at != ';'; ++at) *at = 'x';
      found = true;
    }
  }
  return found;
}

StageCommand::StageCommand(CLI::App& app)
    : verb_(app.add_subcommand("stage",
                               "Bring a data set from object storage, a web server or a share into a folder, or a "
                               "folder into object storage, "
                               "checked")) {
  verb_->add_option(
      "SOURCE", names_,
      "What to bring: https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH, az://CONTAINER/PATH, s3://BUCKET/PATH, the "
      "URL of a file or "
      "of an index "
      "page, @FILE with one URL per line, or a path; after the word `copy` the last one is the folder, as for AzCopy");
  verb_
      ->add_option("--to", folder_,
                   "The folder that it goes to, made where it is missing; or a URL, as of a source: "
                   "az://CONTAINER/PATH, s3://BUCKET/PATH")
      ->type_name("DIR|URL");
  verb_->add_flag("--list", list_, "Only show what the sources hold");
  verb_->add_flag("--dry-run", dry_run_, "Only show which file each object would become");
  verb_
      ->add_option("--include-pattern", include_,
                   "Only files with these names: * and ? stand for others; divided by ; or ,")
      ->type_name("PATTERNS");
  verb_->add_option("--exclude-pattern", exclude_, "No files with these names")->type_name("PATTERNS");
  verb_->add_flag("--recursive", recursive_,
                  "Folders with all that is below them, which is the default; for AzCopy's users");
  verb_->add_flag("--decompress", decompress_, "Decompress what has a Content-Encoding of gzip or deflate");
  verb_->add_flag("--decompress-by-suffix", decompress_by_suffix_,
                  "Decompress that, and files whose names end with .gz, .gzip or .zz");
  add_upload_options();
  verb_
      ->add_option("--overwrite", overwrite_,
                   "Whether files that are there already, and differ, are replaced, and those that an earlier call has "
                   "brought and the source no longer has removed (default: true); false keeps every "
                   "file that is there, also an older one that came from here")
      ->check(CLI::IsMember({"true", "false"}));
  verb_
      ->add_option("--sas", sas_,
                   "A shared access signature: @FILE (read again when it has expired), env:NAME, - for standard input, "
                   "or the text")
      ->type_name("SAS");
  verb_->add_option("--cap-mbps", cap_mbps_, "Read no more than so many megabits per second (default: 0, no limit)")
      ->type_name("N");
  verb_->add_option("--connections", connections_, "Requests under way at once, at most (default: 16)")
      ->check(CLI::Range(1, kMostConnections))
      ->type_name("N");
  verb_->add_option("--memory", memory_, "For objects that are under way (default: 1GB)")->type_name("SIZE");
  verb_->add_option("--shard", part_, "Only the part of one of several nodes: 0/4 is the first of four")
      ->type_name("NODE/NODES");
  verb_
      ->add_option(
          "--shard-by", shard_by_,
          "How it is divided: by size (default), by the last number in names (suffix), or in the names' order (range)")
      ->check(CLI::IsMember({"size", "suffix", "range"}));
  verb_
      ->add_option("--receipt", receipt_,
                   "Where to write the receipt, too (it is always in DIR/.gyre-stage/receipt.json)")
      ->type_name("FILE");
  verb_
      ->add_option("--give-up-after", patience_,
                   "Give up when nothing of an object has arrived for so long (default: 300)")
      ->type_name("SECONDS");
  verb_->add_flag("--json", json_, "Print the receipt, or the list, as JSON");
  verb_->add_flag("-q,--quiet", quiet_, "No progress, and no summary");
  verb_->footer(
      "\nExamples:\n  gyre stage az://data/cifar10 --to /data/cifar10\n"
      "  gyre stage https://host/set/ --to /data/set --shard 0/4\n"
      "  gyre stage /data/set --to az://data/set --compress gzip\n"
      "  gyre stage copy 'https://ACCOUNT.blob.core.windows.net/CONTAINER/set' /data --recursive --decompress --sas "
      "@sas.txt");
}

void StageCommand::add_upload_options() {
  verb_->add_option("--compress", compress_, "Compress files on their way to a URL, and set their Content-Encoding")
      ->check(CLI::IsMember({"gzip"}));
  verb_
      ->add_option("--content-encoding", content_encoding_,
                   "Of files that go to a URL, compressed already: their Content-Encoding")
      ->type_name("ENCODING");
}

void StageCommand::take_azcopy_words() {
  if (names_.empty() || (names_.front() != "copy" && names_.front() != "cp")) return;
  azcopy_ = true;
  names_.erase(names_.begin());
  if (!folder_.empty() || list_) return;
  if (names_.size() < 2) throw UsageError("`gyre stage copy` needs a source and a folder");
  folder_ = names_.back();
  names_.pop_back();
}

void StageCommand::check_words() const {
  if (names_.empty()) throw UsageError("a source is missing: a URL, or a path");
  if (!list_ && folder_.empty()) throw UsageError("--to is missing: the folder that the files go to");
  if (!is_upload() && !(compress_.empty() && content_encoding_.empty()))
    throw UsageError("--compress and --content-encoding are for files that go to a URL (--to)");
  if (is_upload() && (decompress_ || decompress_by_suffix_))
    throw UsageError("--decompress is for files that come to a folder of this machine");
  if (!compress_.empty() && !content_encoding_.empty())
    throw UsageError(
        "--compress sets the Content-Encoding; --content-encoding is for files that are compressed already");
  if (!recursive_) throw UsageError("--recursive=false is not known: name the files by --include-pattern");
}

bool StageCommand::is_upload() const {
  const auto url = store::split_url(folder_);
  return url && url->scheme != "file";
}

StageCommand::Opened StageCommand::open(const store::Credentials& known) const {
  const store::NamePatterns patterns(include_, exclude_);
  const auto patience = stage_options().patience;
  store::WaitNotice notice(store::say_on_stderr("gyre stage"));
  Opened opened;
  for (const std::string& given : names_) {
    const auto [name, contents] = without_star(given);
    auto source = store::node::open_source_or_store(name, known);
    std::vector<store::Object> objects = source->list({.notice = &notice}, patience);
    const std::string folder = azcopy_ && !contents ? folder_for(name, objects) : "";
    opened.listings.push_back(
        {.source = source->name(), .folder = folder, .objects = patterns.select(std::move(objects), source->name())});
    opened.sources.push_back(std::move(source));
  }
  return opened;
}

store::Manifest StageCommand::part_of_this_node(const store::Manifest& manifest) const {
  if (part_.empty()) return manifest;
  const auto [node, nodes] = parse_part(part_);
  return store::part_of_node(manifest, node, nodes, shard_rule(shard_by_));
}

store::StageOptions StageCommand::stage_options() const {
  return {.folder = store::path_of_file_url(folder_),
          .overwrite = overwrite_ == "true",
          .connections = connections_,
          .workers = usable_cores(),
          .memory_bytes = parse_bytes(memory_, "--memory"),
          .bytes_per_second = static_cast<std::uint64_t>(parse_cap(cap_mbps_) * 1e6 / 8),
          .patience = std::chrono::seconds(parse_integer(patience_, "--give-up-after", 1, kMostPatienceSeconds)),
          .leftovers = azcopy_ || overwrite_ != "true" ? store::Leftovers::kStay : store::Leftovers::kRemoveOfTheSet,
          .selection = include_.empty() && exclude_.empty() ? "" : fmt::format("{}\n{}", include_, exclude_)};
}

int StageCommand::print_list_as_json(const store::Manifest& manifest) const {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const store::ManifestEntry& entry : manifest.entries) {
    nlohmann::ordered_json file = {{"name", entry.object.name},
                                   {"source", manifest.sources[entry.source]},
                                   {"size_bytes", entry.object.size_bytes},
                                   {"version", entry.object.version},
                                   {"encoding", entry.object.encoding},
                                   {"md5", entry.object.md5 ? store::hex_of(*entry.object.md5) : ""}};
    if (dry_run_) file["target"] = store::shown_url(folder_) + "/" + entry.target;
    files.push_back(std::move(file));
  }
  const nlohmann::ordered_json list = {{"files", manifest.entries.size()},
                                       {"stored_bytes", manifest.stored_bytes()},
                                       {"manifest_sha256", manifest.digest()},
                                       {"shard", store::json_of(manifest.part)},
                                       {"objects", std::move(files)}};
  fmt::print("{}\n", list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return 0;
}

int StageCommand::print_list(const store::Manifest& manifest) const {
  if (json_) return print_list_as_json(manifest);
  for (const store::ManifestEntry& entry : manifest.entries) {
    const std::string target = dry_run_ ? " -> " + store::shown_url(folder_) + "/" + entry.target : "";
    fmt::print("{:>15} {}{}\n", entry.object.size_bytes, cli::printable(entry.object.name), cli::printable(target));
  }
  fmt::print("{:>15} in {} file{}\n", manifest.stored_bytes(), manifest.entries.size(),
             manifest.entries.size() == 1 ? "" : "s");
  return 0;
}

int StageCommand::stage(const store::Manifest& manifest, const Opened& opened) const {
  EndSignals signals;
  store::WaitNotice notice(store::say_on_stderr("gyre stage"));
  store::StageOptions options = stage_options();
  options.notice = &notice;
  const store::Receipt receipt = stage_with_progress(manifest, opened.sources, std::move(options), signals, quiet_);
  if (!receipt_.empty()) cli::write_output(receipt_, as_bytes(receipt.json()));
  if (json_) fmt::print("{}", receipt.json());
  if (!quiet_ && !json_) fmt::print("{}", receipt.text());
  for (const std::string& note : receipt.notes()) fmt::print(stderr, "gyre stage: {}\n", cli::printable(note));
  for (const auto& [file, reason] : receipt.failed) fmt::print(stderr, "gyre stage: {}\n", cli::printable(reason));
  return receipt.complete() ? 0 : 1;
}

int StageCommand::upload(const store::Manifest& manifest, const Opened& opened, const store::Credentials& known) const {
  const auto target = store::open_source(folder_, known);
  std::vector<store::UploadEntry> entries;
  for (const store::ManifestEntry& entry : manifest.entries)
    entries.push_back({.source = opened.sources[entry.source].get(), .object = entry.object, .name = entry.target});
  const store::StageOptions options = stage_options();
  EndSignals signals;
  store::WaitNotice notice(store::say_on_stderr("gyre stage"));
  store::UploadReceipt receipt = upload_with_progress(entries, *target,
                                                      {.compress = !compress_.empty(),
                                                       .encoding = content_encoding_,
                                                       .overwrite = options.overwrite,
                                                       .connections = options.connections,
                                                       .memory_bytes = options.memory_bytes,
                                                       .bytes_per_second = options.bytes_per_second,
                                                       .patience = options.patience,
                                                       .notice = &notice},
                                                      signals, quiet_);
  receipt.part = manifest.part;
  if (!receipt_.empty()) cli::write_output(receipt_, as_bytes(receipt.json()));
  if (json_) fmt::print("{}", receipt.json());
  if (!quiet_ && !json_) fmt::print("{}", receipt.text());
  for (const auto& [file, reason] : receipt.failed) fmt::print(stderr, "gyre stage: {}\n", cli::printable(reason));
  return receipt.complete() ? 0 : 1;
}

int StageCommand::run(const std::vector<std::string>& environment) {
  take_azcopy_words();
  check_words();
  const store::Credentials known = stage_credentials(sas_, environment);
  std::vector<std::string> places = names_;
  if (!folder_.empty()) places.push_back(folder_);
  if (!sas_.empty() && std::ranges::none_of(places, [&](const auto& name) { return store::is_of_azure(name, known); }))
    throw UsageError(
        "--sas is for Azure Storage, and nothing here is known to be: name it as az://CONTAINER/PATH, by its endpoint "
        "in AZURE_STORAGE_CONNECTION_STRING (BlobEndpoint=…), or append the SAS to the URL");
  Opened opened = open(known);
  const store::Inflation inflation = decompress_by_suffix_ ? store::Inflation::kBySuffix
                                     : decompress_         ? store::Inflation::kByEncoding
                                                           : store::Inflation::kNone;
  const store::Manifest manifest = part_of_this_node(store::make_manifest(std::move(opened.listings), inflation));
  if (list_ || dry_run_) return print_list(manifest);
  return is_upload() ? upload(manifest, opened, known) : stage(manifest, opened);
}

}  // namespace gyre::app
