#include "workloads/training/image_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/parquet_set.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/stratified_split.h"

namespace gyre::training {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kProbeBytes = std::uint64_t{1} << 30;

/// The regular files of a folder whose names begin so, sorted.
std::vector<std::string> files_in(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, problem)) {
    if (entry.is_regular_file(problem) && entry.path().filename().string().starts_with(prefix)) {
      names.push_back(entry.path().string());
    }
  }
  if (problem) throw Error(ErrorCode::kNotFound, fmt::format("{}: {}", folder.string(), problem.message()));
  std::ranges::sort(names);
  return names;
}

/// What data::open_samples() is given for the first of `sets` that `data_dir` has: what data::files_of_folder() finds
/// in the folder of that name, or the files named SET-*. Empty where it has none.
std::vector<std::string> sample_files(const fs::path& data_dir, const std::vector<std::string_view>& sets) {
  for (const std::string_view set : sets) {
    if (fs::is_directory(data_dir / set)) {
      return data::files_of_folder((data_dir / set).string(), data::open_local_file);
    }
    std::vector<std::string> shards = files_in(data_dir, std::string(set) + "-");
    if (!shards.empty()) return shards;
  }
  return {};
}

/// The folders in `data_dir` that hold images, which may be classes.
std::vector<std::string> class_folders_in(const fs::path& data_dir) {
  data::LeftOut ignored;
  std::vector<std::string> classes;
  for (const std::string& name : data::entries_of(data_dir.string(), ignored).folders) {
    if (data::has_image((data_dir / name).string())) classes.push_back(name);
  }
  return classes;
}

/// A folder of images without class folders, as competitions have them for testing.
bool is_unlabelled(const std::vector<std::string>& files) {
  std::error_code ignored;
  if (files.size() != 1 || !fs::is_directory(files.front(), ignored)) return false;
  data::LeftOut left_out;
  return data::entries_of(files.front(), left_out).folders.empty();
}

void require_labels(const std::vector<std::string>& files) {
  if (!is_unlabelled(files)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the images in {} have no labels: a training or validation set has a folder for each class. "
                          "(--validation-share 0.1 validates with a part of the training set)",
                          files.front()));
}

std::string shortened(const std::vector<std::string>& names) {
  constexpr std::size_t kMostShown = 5;
  const auto shown = std::span(names).first(std::min(names.size(), kMostShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), shown.size() < names.size() ? ", …" : "");
}

[[noreturn]] void refuse_missing(const fs::path& data_dir, const ImageLayout& layout,
                                 const std::vector<std::string_view>& sets) {
  const std::string folder = fmt::format("a folder {}", fmt::join(sets, " or "));
  const std::string missing = layout.others.empty() ? folder + " nor" : layout.others + " nor " + folder + " or";
  std::string text = fmt::format("{} has neither {} files {}-*", data_dir.string(), missing, sets.front());
  const std::vector<std::string> classes = class_folders_in(data_dir);
  const bool has_train = !sample_files(data_dir, {"train"}).empty();
  if (has_train || !classes.empty()) {
    text += fmt::format(". To train with a part of {} and validate with the rest, add --validation-share 0.1",
                        has_train ? "train" : fmt::format("its folders ({})", shortened(classes)));
  } else {
    text += fmt::format("; `python -m gyre.datasets {} --out {}` writes such a data set", layout.example,
                        data_dir.string());
  }
  throw Error(ErrorCode::kNotFound, text);
}

/// Classes of `train` without an image in `test`, where both have class folders.
void add_missing_classes(const data::SampleSet& train, const data::SampleSet& test, std::vector<std::string>& remarks) {
  const std::vector<std::string> classes = train.classes();
  if (classes.empty() || test.labels().empty()) return;
  std::vector<bool> validated(classes.size());
  for (const std::uint32_t label : test.labels()) {
    if (label < validated.size()) validated[label] = true;
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (!validated[i]) missing.push_back(classes[i]);
  }
  if (missing.empty()) return;
  remarks.push_back(fmt::format("without a validation image: {} ({} of {} classes)", shortened(missing), missing.size(),
                                classes.size()));
}

void add_left_out(const data::SampleSet& set, std::string_view of, std::vector<std::string>& remarks) {
  const std::string left_out = set.left_out();
  if (!left_out.empty()) remarks.push_back(fmt::format("left out of {}: {}", of, left_out));
}

data::SampleOptions how_to_open(const ImageProgramOptions& options) {
  return {.threads = options.threads, .pyarrow_folder = data::pyarrow_folder_from_environment()};
}

/// A part of the training set, held out.
ImageSets split_images(const ImageProgramOptions& options, const ImageLayout& layout) {
  const fs::path& data_dir = options.data_dir;
  const std::vector<std::string> held = sample_files(data_dir, layout.test_sets);
  if (!held.empty() && !is_unlabelled(held)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has a validation set ({}): leave out --validation-share, which takes one from the "
                            "training set, or move it away",
                            data_dir.string(), fmt::join(layout.test_sets, " or ")));
  }
  std::vector<std::string> files = sample_files(data_dir, {"train"});
  if (files.empty() && !class_folders_in(data_dir).empty()) files = {data_dir.string()};
  if (files.empty()) refuse_missing(data_dir, layout, {"train"});
  require_labels(files);
  const data::SampleOptions how = how_to_open(options);
  const auto whole = data::open_samples(files, data::open_local_file, how);
  const data::SplitSets parts = data::split_set(whole, *options.validation_share, options.seed);
  ImageSets sets{
      .train = parts.training,
      .test = parts.validation,
      .files = fmt::format("{:016x}", data::files_checksum(files, data::open_local_file, *parts.training, how))};
  add_left_out(*whole, files.front(), sets.remarks);
  return sets;
}

/// Two sets of their own.
ImageSets separate_images(const ImageProgramOptions& options, const ImageLayout& layout) {
  const std::vector<std::string> files = sample_files(options.data_dir, {"train"});
  if (files.empty()) refuse_missing(options.data_dir, layout, {"train"});
  const std::vector<std::string> held = sample_files(options.data_dir, layout.test_sets);
  if (held.empty()) refuse_missing(options.data_dir, layout, layout.test_sets);
  require_labels(files);
  require_labels(held);
  data::SampleOptions how = how_to_open(options);
  OpenedSamples train = open_with_digest(files, how);
  how.classes = train.samples->classes();
  ImageSets sets{.train = std::move(train.samples),
                 .test = data::open_samples(held, data::open_local_file, how),
                 .files = std::move(train.digest)};
  add_left_out(*sets.train, "the training set", sets.remarks);
  add_left_out(*sets.test, "the validation set", sets.remarks);
  return sets;
}

/// As many as the folders of `set`, among which those of `test` have to be; or `otherwise` where the data does not say.
std::int64_t class_count(const data::SampleSet& set, const data::SampleSet& test, std::int64_t otherwise,
                         const fs::path& data_dir) {
  const std::vector<std::string> classes = set.classes();
  const std::vector<std::string> tested = test.classes();
  if (classes.empty() != tested.empty()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{}: the {} set has a folder for each class, and the other has labels "
                            "in its files, so classes cannot be compared",
                            data_dir.string(), classes.empty() ? "validation" : "training"));
  }
  if (tested.size() > classes.size()) {
    const std::vector<std::string> others(tested.begin() + static_cast<std::ptrdiff_t>(classes.size()), tested.end());
    throw Error(ErrorCode::kMismatch,
                fmt::format("{}: the validation set has classes that the training set lacks: {}. It has: {}",
                            data_dir.string(), shortened(others), shortened(classes)));
  }
  if (classes.size() == 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: all training images are of one class ({}), and to classify takes two or more folders",
                            data_dir.string(), classes.front()));
  }
  return classes.empty() ? otherwise : static_cast<std::int64_t>(classes.size());
}

/// An image of `how.height` x `how.width`, its values of `type`, and its label.
std::vector<data::Field> image_fields(const data::SampleSet& set, const data::ImageOptions& how,
                                      data::ElementType type) {
  const auto reader = set.make_reader(std::make_shared<data::MemoryBudget>(kProbeBytes));
  data::StageTimes times;
  const data::Example sample = reader->read_sample(0, times);
  const bool imagenet = sample.find("image/encoded") != nullptr;
  if (!imagenet && sample.find("label") == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the image has no label; a folder of images needs a folder for each class",
                            reader->position()));
  }
  const std::vector<std::uint64_t> planes = {3, how.height, how.width};
  const std::vector<std::uint64_t> interleaved = {how.height, how.width, 3};
  data::Field image{.name = "image",
                    .kind = data::FeatureKind::kBytes,
                    .type = type,
                    .shape = how.channels_first ? planes : interleaved,
                    .feature = imagenet ? "image/encoded" : "",
                    .image = how};
  data::Field label{.name = "label",
                    .kind = data::FeatureKind::kInts,
                    .stored = data::ElementType::kInt64,
                    .type = data::ElementType::kInt64,
                    .shape = {},
                    .feature = imagenet ? "image/class/label" : "",
                    .offset = imagenet ? -1 : 0};
  return {std::move(image), std::move(label)};
}

}  // namespace

ImageSets open_image_sets(const ImageProgramOptions& options, const ImageLayout& layout) {
  ImageSets sets = options.validation_share ? split_images(options, layout) : separate_images(options, layout);
  add_missing_classes(*sets.train, *sets.test, sets.remarks);
  sets.folder = options.data_dir;
  sets.classes = class_count(*sets.train, *sets.test, options.classes, options.data_dir);
  return completed(std::move(sets), options, layout);
}

ImageSets completed(ImageSets sets, const ImageProgramOptions& options, const ImageLayout& layout) {
  sets.train_fields = image_fields(*sets.train, layout.train_images, layout.type);
  sets.test_fields = image_fields(*sets.test, layout.test_images, layout.type);
  const std::string advice = sets.train->advice_on_full_shuffle(options.memory_budget_bytes);
  if (!advice.empty()) sets.remarks.push_back(fmt::format("the images are shuffled in blocks: {}", advice));
  return sets;
}

std::string describe(const ImageSets& sets, std::string_view program, std::string_view test) {
  std::string lines = fmt::format("{}: {} training images, {} {} images, {} classes, from {}", program,
                                  sets.train->count(), sets.test->count(), test, sets.classes, sets.folder.string());
  for (const std::string& remark : sets.remarks) lines += "\n" + remark;
  return lines;
}

OpenedSamples open_with_digest(const std::vector<std::string>& files, const data::SampleOptions& how) {
  auto samples = data::open_samples(files, data::open_local_file, how);
  return {samples, fmt::format("{:016x}", data::files_checksum(files, data::open_local_file, *samples, how))};
}

at::Tensor labels_of(const data::Batch& batch, std::int64_t classes) {
  const auto count = static_cast<std::int64_t>(batch.samples().counted);
  at::Tensor labels = at::from_blob(batch.field(kLabel).data(), {count}, at::TensorOptions(at::kLong));
  const auto highest = labels.max().item<std::int64_t>();
  const auto lowest = labels.min().item<std::int64_t>();
  if (lowest >= 0 && highest < classes) return labels;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a sample has the label {}, and the network has {} classes, counted from 0: see --classes",
                          lowest < 0 ? lowest : highest, classes));
}

}  // namespace gyre::training
