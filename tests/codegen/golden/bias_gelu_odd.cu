KERNEL(128) void add_gelu(const bf16* __restrict__ g_in0, const bf16* __restrict__ g_in1, bf16* __restrict__ g_out0, i32 p0, FastDiv p1, i32 p2, i32 p3) {
  bf16 r_in0[8];
  bf16 r_in1[8];
  bf16 r_out0[8];
  const i32 v0 = (block_x() * 128) + thread_x();
  const i32 v1 = v0 * 8;
  const i32 v2 = p0 - v1;
  load_some(r_in0, g_in0 + v1, v2);
  const i32 v3 = fast_mod_(v1, p1);
  load_row(r_in1, g_in1 + v3, v3, p2, p3, v2);
  UNROLL for (i32 v4 = 0; v4 < 8; ++v4) {
    const f32 v5 = to<f32>(r_in0[v4]) + to<f32>(r_in1[v4]);
    const f32 v6 = gelu_tanh_half_(v5);
    const bf16 v7 = to<bf16>(v6);
    r_out0[v4] = v7;
  }
  store_some(g_out0 + v1, r_out0, v2);
}
