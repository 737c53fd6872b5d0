#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "gyre/store/sources/open.h"
#include "gyre/store/staging/manifest.h"
#include "gyre/store/staging/shards.h"
#include "gyre/store/staging/stage.h"

namespace gyre::app {

/// Replaces the signatures (`sig=…`) in a program's arguments, which everybody on the machine can read, once they were
/// copied. True where there was one.
bool hide_signatures(int argc, char** argv);

/// The verb `gyre stage`, which also takes AzCopy's `copy SOURCE FOLDER` and its options.
class StageCommand {
 public:
  explicit StageCommand(CLI::App& app);

  /// After the options were parsed. Returns the exit code. UsageError, gyre::Error.
  int run(const std::vector<std::string>& environment);

 private:
  struct Opened {
    std::vector<std::unique_ptr<store::Source>> sources;
    std::vector<store::Listing> listings;
  };

  void add_upload_options();
  /// AzCopy's words: the last name is the folder, and a source that is a folder becomes one below it.
  void take_azcopy_words();
  void check_words() const;
  Opened open(const store::Credentials& known) const;
  store::Manifest part_of_this_node(const store::Manifest& manifest) const;
  store::StageOptions stage_options() const;
  int print_list(const store::Manifest& manifest) const;
  int print_list_as_json(const store::Manifest& manifest) const;
  int stage(const store::Manifest& manifest, const Opened& opened) const;
  int upload(const store::Manifest& manifest, const Opened& opened, const store::Credentials& known) const;
  /// Whether --to names a place of an object store.
  bool is_upload() const;

  CLI::App* verb_;
  std::vector<std::string> names_;
  std::string folder_;
  bool azcopy_ = false;
  bool list_ = false;
  bool dry_run_ = false;
  std::string include_;
  std::string exclude_;
  bool recursive_ = true;
  bool decompress_ = false;
  bool decompress_by_suffix_ = false;
  std::string compress_;
  std::string content_encoding_;
  std::string overwrite_ = "true";
  std::string sas_;
  std::string cap_mbps_ = "0";
  int connections_ = 16;
  std::string memory_ = "1GB";
  std::string part_;
  std::string shard_by_ = "size";
  std::string receipt_;
  std::string patience_ = "300";
  bool json_ = false;
  bool quiet_ = false;
};

}  // namespace gyre::app
