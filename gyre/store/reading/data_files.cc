#include "gyre/store/reading/data_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/thread_annotations.h"
#include "gyre/data/file_names.h"
#include "gyre/store/reading/listed_tree.h"
#include "gyre/store/reading/object_ranges.h"
#include "gyre/store/reading/read_ahead.h"
#include "gyre/store/sources/open.h"
#include "gyre/store/sources/text.h"

namespace gyre::store {

namespace {

/// The least that is read at once where a file is read from its beginning, or on from there: readers that look for
/// something take some bytes at a time.
constexpr std::uint64_t kLeastWindowBytes = std::uint64_t{64} << 10;
/// Of a loader's memory budget one of so many parts is for what is read ahead.
constexpr std::uint64_t kBudgetParts = 4;
constexpr std::uint64_t kMostWindowBytes = std::uint64_t{1} << 20;

std::string without_slash(std::string name) {
  while (name.ends_with('/')) name.pop_back();
  return name;
}

/// Whether it is not a file that is missing, which may be looked for in vain, but the whole bucket or container.
bool lacks_container(const Error& error) {
  const std::string_view said = error.what();
  return said.find("NoSuchBucket") != std::string_view::npos ||
         said.find("ContainerNotFound") != std::string_view::npos;
}

/// What one URL names, once it is listed.
struct Listing {
  std::unique_ptr<Source> source;
  ListedTree tree;
  std::string single;  ///< The object that the URL names; empty where it names a folder.
  std::unique_ptr<ObjectRanges> ranges;
};

/// A URL, as it was given.
struct Root {
  std::string given;
  Mutex mutex;
  std::shared_ptr<Listing> listing GYRE_GUARDED_BY(mutex);
  bool missing GYRE_GUARDED_BY(mutex) = false;
};

class RemoteFile : public data::ReadableFile {
 public:
  /// `keep`: what holds the place and `ahead`.
  RemoteFile(std::string name, ReadAhead::Place place, ReadAhead& ahead, std::shared_ptr<const void> keep)
      : name_(std::move(name)), place_(place), ahead_(ahead), keep_(std::move(keep)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size_bytes() const override { return place_.object->size_bytes; }
  std::string version() const override { return place_.object->version; }

  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const override {
    if (into.empty()) return;
    if (offset_bytes > size_bytes() || into.size() > size_bytes() - offset_bytes) {
      throw Error(ErrorCode::kCorruptData, fmt::format("{} ends at byte {}, where {} more bytes were expected", name_,
                                                       size_bytes(), offset_bytes + into.size() - size_bytes()));
    }
    if (into.size() > 2 * ReadAhead::kPieceBytes) {  // Side by side.
      const std::uint64_t first = ReadAhead::kPieceBytes;
      ahead_.expect(place_, {{{.offset_bytes = offset_bytes + first, .size_bytes = into.size() - first}}});
    }
    while (!into.empty()) {
      const ReadAhead::Taken taken = ahead_.take(*place_.object, offset_bytes, into);
      const std::size_t bytes =
          taken.bytes > 0 ? taken.bytes
                          : read_now(offset_bytes, into.first(static_cast<std::size_t>(std::min<std::uint64_t>(
                                                       {into.size(), taken.until - offset_bytes, most_now()}))));
      into = into.subspan(bytes);
      offset_bytes += bytes;
    }
  }

  void will_read(std::span<const data::FileRange> ranges) const override { ahead_.expect(place_, ranges); }
  bool is_here(const data::FileRange& range) const override { return ahead_.holds(*place_.object, range); }

 private:
  static std::uint64_t most_now() { return 2 * ReadAhead::kPieceBytes; }

  std::size_t read_now(std::uint64_t offset_bytes, std::span<std::byte> into) const {
    // Who reads a file as a whole has often looked at its beginning before.
    if (const std::size_t known = take_from_window(offset_bytes, into); known > 0) return known;
    if (into.size() >= kLeastWindowBytes || !read_from_window(offset_bytes, into)) {
      place_.ranges->read(*place_.object, offset_bytes, into);
    }
    return into.size();
  }

  std::size_t take_from_window(std::uint64_t offset_bytes, std::span<std::byte> into) const GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (offset_bytes < window_begin_ || offset_bytes >= window_begin_ + window_.size()) return 0;
    const auto from = std::span(window_).subspan(static_cast<std::size_t>(offset_bytes - window_begin_));
    const std::size_t known = std::min(from.size(), into.size());
    std::memcpy(into.data(), from.data(), known);
    return known;
  }

  /// False where the reading is not one of those that go on from the beginning.
  bool read_from_window(std::uint64_t offset_bytes, std::span<std::byte> into) const GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const std::uint64_t end = window_begin_ + window_.size();
    const std::uint64_t most_passed_over = window_.empty() ? 0 : kLeastWindowBytes;
    if (offset_bytes < window_begin_ || offset_bytes > end + most_passed_over) return false;
    if (offset_bytes + into.size() > end) {
      const std::uint64_t wanted = std::clamp<std::uint64_t>(2 * window_.size(), kLeastWindowBytes, kMostWindowBytes);
      window_.resize(static_cast<std::size_t>(std::min(wanted, size_bytes() - offset_bytes)));
      window_begin_ = offset_bytes;
      try {
        place_.ranges->read(*place_.object, offset_bytes, window_);
      } catch (...) {
        window_.clear();
        throw;
      }
    }
    std::memcpy(into.data(), window_.data() + (offset_bytes - window_begin_), into.size());
    return true;
  }

  std::string name_;
  ReadAhead::Place place_;
  ReadAhead& ahead_;
  std::shared_ptr<const void> keep_;
  mutable Mutex mutex_;
  mutable Bytes window_ GYRE_GUARDED_BY(mutex_);
  mutable std::uint64_t window_begin_ GYRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace

/// What the opener's files share.
class DataFiles::Reading : public data::Folders, public std::enable_shared_from_this<Reading> {
 public:
  Reading(OpenSource open_source, const ReadingOptions& options)
      : open_source_(std::move(open_source)), options_(options), ahead_(options.connections, options.memory_bytes) {}
  ~Reading() override { stop_.request_stop(); }

  std::string add(const std::string& given) GYRE_EXCLUDES(mutex_) {
    if (!is_source_url(given)) return path_of_file_url(given);
    check_no_fragment(given);
    const std::string shown = shown_url(given);
    const std::string name = without_slash(data::folder_before_wildcards(shown));
    const bool pattern = name != without_slash(shown);
    const auto url = split_url(given);
    const std::size_t scheme_end = url->scheme.size() + 3;
    const std::size_t at = url->authority.rfind('@');
    const std::string user = at == std::string::npos ? "" : url->authority.substr(0, at + 1);
    std::string whole = name.substr(0, scheme_end) + user + name.substr(scheme_end);
    if (pattern || shown.ends_with('/')) whole += "/";
    if (!url->query.empty()) whole += "?" + url->query;
    const MutexLock lock(mutex_);
    auto& root = roots_[name];
    if (!root) {
      root = std::make_shared<Root>();
      root->given = whole;
    } else if (root->given != whole) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is named by two URLs that differ in their credentials alone; use one of them", name));
    }
    return without_slash(shown);
  }

  std::unique_ptr<const data::ReadableFile> open(const std::string& name) {
    if (!is_source_url(name)) return data::open_local_file(name);
    const auto [listing, path] = find(name);
    const Object* object = listing ? listing->tree.find(path) : nullptr;
    if (object == nullptr) throw Error(ErrorCode::kNotFound, fmt::format("cannot read {}: it does not exist", name));
    const ReadAhead::Place place{.object = object, .ranges = listing->ranges.get()};
    return std::make_unique<RemoteFile>(name, place, ahead_, shared_from_this());
  }

  data::FileKind kind(const std::string& name) const override {
    if (!is_source_url(name)) return data::local_folders()->kind(name);
    const auto [listing, path] = find(name);
    return listing ? listing->tree.kind(path) : data::FileKind::kMissing;
  }

  std::vector<data::FolderEntry> list(const std::string& folder) const override {
    if (!is_source_url(folder)) return data::local_folders()->list(folder);
    const auto [listing, path] = find(folder);
    std::vector<data::FolderEntry> entries;
    if (listing) entries = listing->tree.list(path);
    if (entries.empty()) {
      throw Error(ErrorCode::kNotFound, fmt::format("cannot read the folder {}: it does not exist", folder));
    }
    return entries;
  }

  std::string real_name(const std::string& folder) const override {
    return is_source_url(folder) ? without_slash(folder) : data::local_folders()->real_name(folder);
  }

  bool are_far() const override GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return !roots_.empty();
  }

  void stop() { stop_.request_stop(); }

 private:
  struct Found {
    std::shared_ptr<Listing> listing;  ///< Null where the source does not have it.
    std::string path;                  ///< In its tree.
  };

  Found find(const std::string& given) const GYRE_EXCLUDES(mutex_) {
    const std::string name = without_slash(given);
    const auto [root, root_name] = root_of(name);
    Found found{.listing = listing_of(*root), .path = {}};
    if (!found.listing) return found;
    if (name.size() > root_name.size()) found.path = name.substr(root_name.size() + 1);
    const std::string& single = found.listing->single;
    if (!single.empty()) found.path = found.path.empty() ? single : "/";  // Below a file there is nothing.
    return found;
  }

  /// That of the longest name in front of `name`; else one of its own.
  std::pair<std::shared_ptr<Root>, std::string> root_of(const std::string& name) const GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (std::string above = name; is_source_url(above); above = without_slash(above.substr(0, above.rfind('/')))) {
      const auto known = roots_.find(above);
      if (known != roots_.end()) return {known->second, above};
    }
    auto root = std::make_shared<Root>();
    root->given = name;
    roots_.emplace(name, root);
    return {root, name};
  }

  /// Listed once; null where the source does not have it.
  std::shared_ptr<Listing> listing_of(Root& root) const GYRE_EXCLUDES(mutex_) {
    const MutexLock lock(root.mutex);
    if (root.listing || root.missing) return root.listing;
    const ReadLimits limits{.stop = stop_.get_token(), .notice = &notice_};
    auto source = open_source_(root.given);
    std::vector<Object> objects;
    try {
      objects = source->list(limits, options_.patience);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNotFound || lacks_container(error)) throw;
      root.missing = true;
      return nullptr;
    }
    const std::string name = shown_url(root.given);
    const std::string last = name.substr(name.rfind('/') + 1);
    const bool is_file = objects.size() == 1 && (last == objects.front().name ||
                                                 (split_url(name)->is_encoded && decode(last) == objects.front().name));
    std::string single = is_file ? objects.front().name : "";
    auto ranges = std::make_unique<ObjectRanges>(*source, limits, options_.patience);
    root.listing = std::make_shared<Listing>(std::move(source), ListedTree(std::move(objects)), std::move(single),
                                             std::move(ranges));
    return root.listing;
  }

  const OpenSource open_source_;
  const ReadingOptions options_;
  std::stop_source stop_;
  mutable WaitNotice notice_{say_on_stderr("gyre")};
  mutable Mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<Root>> roots_ GYRE_GUARDED_BY(mutex_);
  ReadAhead ahead_;  // Last: its threads read from what is above.
};

DataFiles::DataFiles(OpenSource open_source, const ReadingOptions& options)
    : reading_(std::make_shared<Reading>(std::move(open_source), options)) {}

DataFiles::~DataFiles() = default;
DataFiles::DataFiles(DataFiles&&) noexcept = default;
DataFiles& DataFiles::operator=(DataFiles&&) noexcept = default;

std::string DataFiles::add(const std::string& given) const { return reading_->add(given); }

data::FileOpener DataFiles::opener() const {
  return {[reading = reading_](const std::string& name) { return reading->open(name); }, reading_};
}

void DataFiles::stop() { reading_->stop(); }

ReadingOptions reading_options(std::uint64_t budget_bytes) { return {.memory_bytes = budget_bytes / kBudgetParts}; }

std::uint64_t read_ahead_bytes(const data::FileOpener& opener, std::uint64_t budget_bytes) {
  return opener.folders().are_far() ? reading_options(budget_bytes).memory_bytes : 0;
}

bool is_source_url(const std::string& name) {
  const auto url = split_url(name);
  return url && (url->scheme == kStoreScheme || (url->scheme != "file" && !url->authority.empty()));
}

}  // namespace gyre::store
