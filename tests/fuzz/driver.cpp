// SPDX-License-Identifier: Apache-2.0
// What stands in for libFuzzer where there is none: NAME_fuzzer CORPUS [CHANGES] [FIRST] [LAST]
// reads every file of the corpus, and then CHANGES inputs, each a file of it changed a little, by
// its number alone. With FIRST and LAST it takes those numbers only, and says each before it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "ballast/system/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t most, unsigned seed);
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace ballast::fuzz {
namespace {

constexpr size_t kMaxBytes = 1 << 16;

// The only state: LLVMFuzzerMutate has no argument for it.
std::mt19937& random_bits() {
  static std::mt19937 bits;
  return bits;
}

size_t below(size_t count) { return random_bits()() % std::max<size_t>(count, 1); }

std::vector<std::string> read_corpus(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<std::string> corpus;
  for (const fs::path& path : paths) corpus.push_back(read_text(path));
  if (corpus.empty()) throw std::runtime_error(folder.string() + " holds no file");
  return corpus;
}

void read_input(const std::string& input) {
  // A copy of just that size, so that a sanitizer sees who reads beyond it.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string changed_input(const std::vector<std::string>& corpus, size_t number) {
  random_bits().seed(static_cast<unsigned>(number));
  std::string input = corpus[below(corpus.size())];
  size_t size = input.size();
  const size_t most = std::max(size, kMaxBytes);
  input.resize(most);
  auto* const data = reinterpret_cast<uint8_t*>(input.data());
  for (size_t times = 1 + below(3); times > 0; --times) {
    size = LLVMFuzzerCustomMutator != nullptr
               ? LLVMFuzzerCustomMutator(data, size, most, random_bits()())
               : LLVMFuzzerMutate(data, size, most);
  }
  input.resize(size);
  return input;
}

int run(const std::vector<std::string>& words) {
  const std::vector<std::string> corpus = read_corpus(words.at(0));
  const bool told = words.size() > 2;
  const size_t first = told ? std::stoull(words[2]) : 0;
  const size_t last =
      words.size() > 3 ? std::stoull(words[3]) : (words.size() > 1 ? std::stoull(words[1]) : 1000);
  size_t number = first;
  try {
    for (const std::string& input : corpus) read_input(input);
    for (; number < last; ++number) {
      const std::string input = changed_input(corpus, number);
      if (told) {
        std::cerr << "input " << number << ", written to input_" << number << '\n';
        write_text_atomically("input_" + std::to_string(number), input);
      }
      read_input(input);
    }
  } catch (const std::exception& error) {
    std::cerr << "finding at input " << number << " (or in the corpus): " << error.what() << '\n';
    return 1;
  }
  std::cout << corpus.size() << " files and " << last - first << " changed ones: no finding\n";
  return 0;
}

}  // namespace
}  // namespace ballast::fuzz

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most) {
  using namespace ballast::fuzz;
  const size_t place = below(size), room = most - size;
  switch (below(6)) {
    case 0:  // a bit
      if (size > 0) data[place] ^= static_cast<uint8_t>(1U << below(8));
      return size;
    case 1:  // a byte
      if (size > 0) data[place] = static_cast<uint8_t>(below(256));
      return size;
    case 2: {  // one more
      if (room == 0) return size;
      std::memmove(data + place + 1, data + place, size - place);
      data[place] = static_cast<uint8_t>(below(256));
      return size + 1;
    }
    case 3: {  // some less
      const size_t count = std::min(1 + below(16), size - place);
      std::memmove(data + place, data + place + count, size - place - count);
      return size - count;
    }
    case 4: {  // some a second time
      const size_t count = std::min({1 + below(32), size - place, room});
      std::memmove(data + place + count, data + place, size - place);
      return size + count;
    }
    default:  // cut short
      return place;
  }
}

int main(int count, char** words) {
  if (count < 2) {
    std::cerr << "usage: NAME_fuzzer CORPUS [CHANGES] [FIRST] [LAST]\n";
    return 2;
  }
  try {
    return ballast::fuzz::run({words + 1, words + count});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
