// Nothing: CMake makes precompiled headers for a target with a source.
int main() {}
