#include "gyre/data/formats/cifar10.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/data/formats/pickle_subset.h"

namespace gyre::data {
namespace {

constexpr int kTrainFiles = 5;
constexpr std::uint64_t kRecordBytes = 1 + kCifar10ImageBytes;

std::vector<std::string> file_names(std::string_view suffix) {
  std::vector<std::string> names;
  for (int i = 1; i <= kTrainFiles; ++i) names.push_back(fmt::format("data_batch_{}{}", i, suffix));
  names.push_back(fmt::format("test_batch{}", suffix));
  return names;
}

Cifar10Records open_binary(const std::filesystem::path& path, const FileOpener& open) {
  auto file = open(path.string());
  const std::uint64_t size = file->size_bytes();
  if (size == 0 || size % kRecordBytes != 0) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} has {} bytes, which is no whole number of {}-byte records; it was cut short or is not "
                            "CIFAR-10's binary layout. Copy or download it again",
                            path.string(), size, kRecordBytes));
  }
  Cifar10Records records;
  records.path = path;
  records.file = std::move(file);
  records.offset_bytes = 1;
  records.stride_bytes = kRecordBytes;
  records.count = size / kRecordBytes;
  return records;
}

std::vector<std::uint8_t> read_labels(const PickleDocument& document, const PickleObject& list, std::string_view name) {
  std::vector<std::uint8_t> labels;
  labels.reserve(list.items.size());
  for (const std::uint32_t index : list.items) {
    const PickleObject& label = document.objects[index];
    if (label.kind != PickleObject::Kind::kInteger || label.integer < 0 || label.integer >= kCifar10Classes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: label {} is not a number from 0 to {}", name, labels.size(), kCifar10Classes - 1));
    }
    labels.push_back(static_cast<std::uint8_t>(label.integer));
  }
  return labels;
}

/// The labels and the pixels' bytes, which lie in `document` or in the bytes it was parsed from.
std::pair<std::vector<std::uint8_t>, std::span<const std::byte>> read_batch(const PickleDocument& document,
                                                                            std::string_view name) {
  const PickleObject& root = document.objects[document.root];
  const PickleObject* images = document.find(root, "data");
  const PickleObject* labels = document.find(root, "labels");
  if (images == nullptr || images->kind != PickleObject::Kind::kArray || labels == nullptr ||
      labels->kind != PickleObject::Kind::kList) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: a dict with the array `data` and the list `labels` is needed", name));
  }
  if (images->shape.size() != 2 || images->shape[1] != kCifar10ImageBytes || images->shape[0] == 0) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: `data` has the shape ({}); n x {} is needed", name,
                                                     fmt::join(images->shape, ", "), kCifar10ImageBytes));
  }
  if (labels->items.size() != images->shape[0]) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{}: {} images and {} labels", name, images->shape[0], labels->items.size()));
  }
  return {read_labels(document, *labels, name), as_bytes(images->text)};
}

/// The whole of a file that no reader needs in parts.
Bytes read_whole(const ReadableFile& file, const std::filesystem::path& path) {
  if (file.size_bytes() > kMostPickleBytes) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} has {}; CIFAR-10's files have at most {}", path.string(),
                                                     format_bytes(file.size_bytes()), format_bytes(kMostPickleBytes)));
  }
  Bytes bytes(static_cast<std::size_t>(file.size_bytes()));
  file.read_at(0, bytes);
  return bytes;
}

std::vector<std::string> names_in_text(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    if (!line.empty()) names.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

std::vector<std::string> names_in_pickle(std::span<const std::byte> bytes, const std::string& name) {
  const PickleDocument document = parse_pickle(bytes, name);
  const PickleObject* list = document.find(document.objects[document.root], "label_names");
  if (list == nullptr || list->kind != PickleObject::Kind::kList) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: a dict with the list `label_names` is needed", name));
  }
  std::vector<std::string> names;
  for (const std::uint32_t index : list->items) names.emplace_back(document.objects[index].text);
  return names;
}

Cifar10Records open_python(const std::filesystem::path& path, const FileOpener& open) {
  auto file = open(path.string());
  const Bytes bytes = read_whole(*file, path);
  const PickleDocument document = parse_pickle(bytes, path.string());
  auto [labels, pixels] = read_batch(document, path.string());
  Cifar10Records records;
  records.path = path;
  records.stride_bytes = kCifar10ImageBytes;
  records.count = labels.size();
  records.labels = std::move(labels);
  if (document.decoded.empty()) {
    // The pixels stand in the file as they are: read each when it is needed, and keep none.
    records.file = std::move(file);
    records.offset_bytes = static_cast<std::uint64_t>(pixels.data() - bytes.data());
  } else {
    records.memory.assign(pixels.begin(), pixels.end());
  }
  return records;
}

Cifar10Records open_file(const std::filesystem::path& path, const FileOpener& open) {
  return path.extension() == ".bin" ? open_binary(path, open) : open_python(path, open);
}

/// The names of one layout when any of its files is in `folder`; which are missing is an error.
bool holds_layout(const Folders& folders, const std::filesystem::path& folder, const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (folders.kind((folder / name).string()) != FileKind::kFile) missing.push_back(name);
  }
  if (missing.size() == names.size()) return false;
  if (missing.empty()) return true;
  throw Error(ErrorCode::kNotFound, fmt::format("{} holds a part of CIFAR-10's files; missing: {}", folder.string(),
                                                fmt::join(missing, ", ")));
}

}  // namespace

Cifar10Records parse_cifar10_pickle(std::span<const std::byte> bytes, std::string_view name) {
  const PickleDocument document = parse_pickle(bytes, name);
  auto [labels, pixels] = read_batch(document, name);
  Cifar10Records records;
  records.path = name;
  records.memory.assign(pixels.begin(), pixels.end());
  records.stride_bytes = kCifar10ImageBytes;
  records.count = labels.size();
  records.labels = std::move(labels);
  return records;
}

std::vector<std::string> cifar10_class_names(const std::filesystem::path& folder, const FileOpener& open) {
  const auto is_there = [&](const std::filesystem::path& path) {
    return open.folders().kind(path.string()) == FileKind::kFile;
  };
  if (const auto path = folder / "batches.meta.txt"; is_there(path)) {
    return names_in_text(as_text(read_whole(*open(path.string()), path)));
  }
  if (const auto path = folder / "batches.meta"; is_there(path)) {
    return names_in_pickle(read_whole(*open(path.string()), path), path.string());
  }
  return {};
}

Cifar10Images open_cifar10_files(std::span<const std::string> names, const FileOpener& open) {
  std::vector<Cifar10Records> records;
  for (const std::string& name : names) records.push_back(open_file(name, open));
  return Cifar10Images(std::move(records));
}

std::optional<Cifar10Files> find_cifar10(const Folders& folders, const std::filesystem::path& folder) {
  const FileKind kind = folders.kind(folder.string());
  if (kind != FileKind::kFolder) {
    throw Error(ErrorCode::kNotFound, fmt::format("the data folder {} {}", folder.string(),
                                                  kind == FileKind::kMissing ? "does not exist" : "is a file"));
  }
  for (const std::string_view suffix : {".bin", ""}) {
    const std::string subfolder = suffix.empty() ? "cifar-10-batches-py" : "cifar-10-batches-bin";
    for (const std::filesystem::path& place : {folder, folder / subfolder}) {
      const std::vector<std::string> names = file_names(suffix);
      if (!holds_layout(folders, place, names)) continue;
      Cifar10Files files{.train = {}, .test = {}, .folder = place};
      for (const std::string& name : names) files.train.push_back((place / name).string());
      files.test.push_back(std::move(files.train.back()));
      files.train.pop_back();
      return files;
    }
  }
  return std::nullopt;
}

}  // namespace gyre::data
