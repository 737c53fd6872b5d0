#include "gyre/jobs/containers/internal/image_notes.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "gyre/base/bytes.h"
#include "gyre/base/error.h"
#include "gyre/base/file.h"

namespace gyre::jobs::containers::internal {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr std::size_t kMostImages = 1000;  // A note is forgotten sooner than the file grows for ever.

constexpr const char* kState = "state";
constexpr const char* kNames = "names";
constexpr const char* kIds = "ids";

/// Without what is not as we have written it.
Json read_notes(const fs::path& file) {
  Json notes;
  try {
    notes = Json::parse(as_text(read_file(file, kMostBytes)), nullptr, false);
  } catch (const Error&) {
    notes = Json();
  }
  if (!notes.is_object()) notes = Json::object();
  for (const char* part : {kNames, kIds}) {
    if (!notes.contains(part) || !notes[part].is_object()) notes[part] = Json::object();
  }
  return notes;
}

std::optional<std::string> said_in(const Json& part, const std::string& image) {
  const auto found = part.find(image);
  if (found == part.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

void write_notes(const fs::path& file, const Json& notes) {
  try {
    const std::string text = notes.dump(-1, ' ', false, Json::error_handler_t::replace);
    write_file_atomically(file, as_bytes(text));
  } catch (const Error&) {
    return;
  }
}

void add(Json& part, const std::string& image, const std::string& said) {
  if (part.size() >= kMostImages) part = Json::object();
  part[image] = said;
}

}  // namespace

ImageNotes::ImageNotes(fs::path file, std::vector<fs::path> lists) : file_(std::move(file)), lists_(std::move(lists)) {}

std::string ImageNotes::state() const {
  std::string all;
  bool any = false;
  for (const fs::path& list : lists_) {
    struct stat found{};
    const bool there = ::stat(list.c_str(), &found) == 0;
    any = any || there;
    if (there) {
      all += fmt::format("{}:{}:{}:{}.{:09}:{}.{:09}", found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec,
                         found.st_mtim.tv_nsec, found.st_ctim.tv_sec, found.st_ctim.tv_nsec);
    }
    all += ' ';
  }
  return any ? all : "";
}

std::optional<std::string> ImageNotes::find(const std::string& image, const std::string& state) const {
  if (state.empty()) return std::nullopt;
  const Json notes = read_notes(file_);
  return notes.value(kState, Json()) == state ? said_in(notes[kNames], image) : std::nullopt;
}

std::optional<std::string> ImageNotes::find_id(const std::string& id) const {
  return said_in(read_notes(file_)[kIds], id);
}

void ImageNotes::keep(const std::string& image, const std::string& state, const std::string& said) const {
  if (state.empty()) return;
  Json notes = read_notes(file_);
  if (notes.value(kState, Json()) != state) notes[kNames] = Json::object();
  notes[kState] = state;
  add(notes[kNames], image, said);
  write_notes(file_, notes);
}

void ImageNotes::keep_id(const std::string& id, const std::string& said) const {
  Json notes = read_notes(file_);
  add(notes[kIds], id, said);
  write_notes(file_, notes);
}

}  // namespace gyre::jobs::containers::internal
