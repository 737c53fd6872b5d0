// What any loader of JPEG images has to do at least: libjpeg-turbo decodes random parts of images that lie in memory,
// on some threads, and nobody resizes, copies or orders anything. Prints {"per_second": IMAGES}.
#include <cstdio>
// Before jpeglib.h.
#include <jpeglib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/data/image_sampling.h"
#include "gyre/data/open_samples.h"

namespace {

using namespace gyre::data;
using Clock = std::chrono::steady_clock;

std::vector<gyre::Bytes> read_images(const std::vector<std::string>& files, const std::string& key) {
  const auto set = open_samples(files, open_local_file, {});
  const auto reader = set->make_reader(nullptr);
  std::vector<gyre::Bytes> images;
  StageTimes times;
  for (std::uint64_t i = 0; i < set->count(); ++i) {
    const Example sample = reader->read_sample(i, times);
    const Feature* const feature = sample.find(key);
    if (feature == nullptr || feature->bytes().size() != 1) {
      throw gyre::Error(gyre::ErrorCode::kCorruptData, reader->position() + ": there is no image called " + key);
    }
    const auto bytes = feature->bytes().front();
    images.emplace_back(bytes.begin(), bytes.end());
  }
  return images;
}

/// The part that the loader would draw, and at which 1/divisor of the size it would decode it.
void decode_part(const gyre::Bytes& stored, const ImageOptions& options, gyre::Random random,
                 std::vector<std::uint8_t>& row) {
  jpeg_decompress_struct decompress{};
  jpeg_error_mgr errors{};
  decompress.err = jpeg_std_error(&errors);  // Ends the program where an image is damaged.
  jpeg_create_decompress(&decompress);
  jpeg_mem_src(&decompress, reinterpret_cast<const unsigned char*>(stored.data()), stored.size());
  jpeg_read_header(&decompress, TRUE);
  const Sampling part = choose_sampling(options, {decompress.image_width, decompress.image_height}, random);
  const double spare = std::min(part.width / options.width, part.height / options.height);
  unsigned divisor = 1;
  while (divisor < 8 && 2 * divisor <= spare) divisor *= 2;
  decompress.scale_denom = divisor;
  decompress.out_color_space = JCS_RGB;
  jpeg_start_decompress(&decompress);
  JDIMENSION left = part.region.left / divisor;
  JDIMENSION width = (part.region.width + divisor - 1) / divisor;
  width = std::min(width, decompress.output_width - left);
  jpeg_crop_scanline(&decompress, &left, &width);
  row.resize(std::size_t{width} * 3);
  if (part.region.top / divisor > 0) jpeg_skip_scanlines(&decompress, part.region.top / divisor);
  JSAMPROW into = row.data();
  for (std::uint32_t y = 0; y < part.region.height / divisor; ++y) jpeg_read_scanlines(&decompress, &into, 1);
  jpeg_destroy_decompress(&decompress);
}

double images_per_second(const std::vector<gyre::Bytes>& images, int threads, double seconds) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  const auto work = [&] {
    ImageOptions options{.augment = true};
    std::vector<std::uint8_t> row;
    while (!stop.load(std::memory_order_relaxed)) {
      const std::uint64_t number = next++;
      const std::uint64_t image = number % images.size();
      decode_part(images[image], options, random_of_sample(0, number / images.size(), image), row);
    }
  };
  const auto began = Clock::now();
  std::vector<std::thread> helpers;
  for (int i = 0; i < threads; ++i) helpers.emplace_back(work);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const std::uint64_t done = next;
  const std::chrono::duration<double> spent = Clock::now() - began;
  stop = true;
  for (std::thread& helper : helpers) helper.join();
  return static_cast<double>(done) / spent.count();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Decodes random parts of JPEG images in memory: the bound of `gyre bench loader`.");
  std::vector<std::string> files;
  std::string key = "image";
  int threads = 1;
  double seconds = 3;
  app.add_option("files", files, "with the images, or an image folder")->required();
  app.add_option("--key", key, "name of the image in a sample");
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024));
  app.add_option("--seconds", seconds)->check(CLI::Range(0.01, 600.0));
  CLI11_PARSE(app, argc, argv);
  try {
    const auto images = read_images(files, key);
    static_cast<void>(images_per_second(images, threads, std::min(seconds, 0.5)));  // Warms up.
    const nlohmann::json figures = {{"per_second", images_per_second(images, threads, seconds)}};
    std::puts(figures.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gyre-bench-decode: %s\n", error.what());
    return 1;
  }
  return 0;
}
