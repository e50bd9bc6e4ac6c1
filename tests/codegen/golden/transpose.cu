KERNEL(256) void transpose(const bf16* __restrict__ g_in0, bf16* __restrict__ g_out0, FastDiv p0, i32 p1, i32 p2) {
  bf16* tile3 = (bf16*)(shared_memory());
  bf16 t3[64];
  bf16 s3[64];
  bf16 r_in0[64];
  bf16 r_out0[64];
  const i32 v0 = fast_mod_(block_x(), p0);
  const i32 v1 = fast_div_(block_x(), p0);
  const i32 v2 = thread_x() / 16;
  const i32 v3 = v2 * 8;
  const i32 v4 = v0 * 128;
  const i32 v5 = thread_x() % 16;
  const i32 v6 = v5 * 8;
  const i32 v7 = v1 * 128;
  const i32 v8 = (((v3 + v4) * p1) + v6) + v7;
  UNROLL for (i32 v9 = 0; v9 < 8; ++v9) {
    load(part<8>(r_in0, v9 * 8), g_in0 + ((v9 * p1) + v8));
  }
  UNROLL for (i32 v9 = 0; v9 < 8; ++v9) {
    UNROLL for (i32 v10 = 0; v10 < 8; ++v10) {
      const f32 v11 = to<f32>(r_in0[(v9 * 8) + v10]);
      const f32 v12 = relu_(v11);
      const bf16 v13 = to<bf16>(v12);
      t3[(v10 * 8) + v9] = v13;
    }
  }
  const i32 v14 = ((v2 + v5) % 16) * 8;
  UNROLL for (i32 v10 = 0; v10 < 8; ++v10) {
    store(tile3 + (((v6 + v10) * 128) + v14), part<8>(t3, v10 * 8));
  }
  sync_block();
  UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
    load(part<8>(s3, v15 * 8), tile3 + (((v3 + v15) * 128) + v14));
  }
  UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
    UNROLL for (i32 v16 = 0; v16 < 8; ++v16) {
      r_out0[(v15 * 8) + v16] = s3[(v15 * 8) + v16];
    }
  }
  const i32 v17 = (((v3 + v7) * p2) + v4) + v6;
  UNROLL for (i32 v15 = 0; v15 < 8; ++v15) {
    store(g_out0 + ((v15 * p2) + v17), part<8>(r_out0, v15 * 8));
  }
}
